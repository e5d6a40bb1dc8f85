// A Java producer that sends one message a sharding key, by Java's own selector, and prints where each went.
//
// Arguments: NameServer, topic, namespace or "", keys. Prints "sent KEY BROKER QUEUE" lines.

import java.nio.charset.StandardCharsets;
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
        for (int i = 3; i < arguments.length; i++) {
            Message message = new Message(arguments[1], arguments[i].getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, new SelectMessageQueueByHash(), arguments[i], 10_000);
            System.out.printf("sent %s %s %d%n", arguments[i], result.getMessageQueue().getBrokerName(),
                result.getMessageQueue().getQueueId());
        }
        producer.shutdown();
    }
}
