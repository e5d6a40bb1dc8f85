// Prints every trace record of a topic as Java's TraceDataEncoder decodes it, which its console and mqadmin use.
//
// Arguments: NameServer, trace topic. Prints "TYPE GROUP REQUESTID MSGID KEYS RETRYTIMES SUCCESS CODE COST TIME" lines.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class ReadTraces {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-trace-reader");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(arguments[1])) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                offset = result.getNextBeginOffset();
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        print(new String(message.getBody(), StandardCharsets.UTF_8));
                    }
                }
            }
        }
        consumer.shutdown();
        System.exit(0);
    }

    static void print(String records) {
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(records)) {
            TraceBean bean = context.getTraceBeans().get(0);
            System.out.printf("trace %s %s %s %s %s %d %s %d %d %d%n", context.getTraceType(), context.getGroupName(),
                context.getRequestId(), bean.getMsgId(), bean.getKeys(), bean.getRetryTimes(), context.isSuccess(),
                context.getContextCode(), context.getCostTime(), context.getTimeStamp());
        }
    }
}
