// A Java producer that sends one message a sharding key, by Java's own selector, and prints where each went.
//
// Arguments: NameServer, topic, namespace or "", keys. Prints "sent KEY BROKER QUEUE" lines.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

public class SendKeyed {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-keyed");
        producer.setNamesrvAddr(arguments[0]);
        if (!arguments[2].isEmpty()) {
            producer.setNamespace(arguments[2]);
        }
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        lookUp(producer, arguments[1]);
        for (int i = 3; i < arguments.length; i++) {
            Message message = new Message(arguments[1], arguments[i].getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, new SelectMessageQueueByHash(), arguments[i], 20_000);
            System.out.printf("sent %s %s %d%n", arguments[i], result.getMessageQueue().getBrokerName(),
                result.getMessageQueue().getQueueId());
        }
        producer.shutdown();
    }

    // The first look-up also connects, for which the client allows 3 s: a busy machine needs more. A send whose look-up
    // failed would choose among the queues of TBW102.
    static void lookUp(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException failed) {
                if (System.currentTimeMillis() > deadline) {
                    throw failed;
                }
            }
        }
    }
}
