// A Java producer that sends a request and prints the reply.
//
// Arguments: NameServer, topic, body. Prints "reply BODY", or "none ERROR" for each of three requests without one.

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;

public class Asker {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-askers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        lookUp(producer, arguments[1]);
        // On a busy machine a request may fail at its first connection to a broker.
        for (int left = 3; left > 0 && !ask(producer, arguments[1], arguments[2]); left--) { }
        producer.shutdown();
    }

    static boolean ask(DefaultMQProducer producer, String topic, String body) throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        AtomicBoolean replied = new AtomicBoolean();
        // With a callback: the plain request() of some 5.x clients stops waiting when the send is acknowledged.
        producer.request(new Message(topic, body.getBytes(StandardCharsets.UTF_8)), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                replied.set(true);
                System.out.println("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
                ended.countDown();
            }

            @Override
            public void onException(Throwable error) {
                System.out.println("none " + error);
                ended.countDown();
            }
        }, 15_000);
        ended.await(20, TimeUnit.SECONDS);
        return replied.get();
    }

    // The first look-up also connects, for which the client allows 3 s: a busy machine needs more.
    static void lookUp(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.currentTimeMillis() + 20_000;
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
