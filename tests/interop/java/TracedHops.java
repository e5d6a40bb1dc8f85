// A Java producer and a Java consumer with the context of traces in the properties of messages. Both pass it where
// OpenTelemetry's instrumentation of this client does: a hook of sends writes into the message's properties before they
// are encoded, and a hook of consumers reads the received message's.
//
// Arguments: NameServer, topic to send to, topic to consume, traceparent. Prints "sent STATUS" and
// "received TRACEPARENT TRACESTATE BODY".

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.hook.ConsumeMessageContext;
import org.apache.rocketmq.client.hook.ConsumeMessageHook;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class TracedHops {
    static final long SECONDS = 60;

    static class Injecting implements SendMessageHook {
        final String traceparent;

        Injecting(String traceparent) {
            this.traceparent = traceparent;
        }

        @Override
        public String hookName() {
            return "injecting";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            context.getMessage().getProperties().put("traceparent", traceparent);
            context.getMessage().getProperties().put("tracestate", "java=1");
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
        }
    }

    static class Extracting implements ConsumeMessageHook {
        @Override
        public String hookName() {
            return "extracting";
        }

        @Override
        public void consumeMessageBefore(ConsumeMessageContext context) {
            context.getMsgList().forEach(message -> System.out.printf("received %s %s %s%n",
                message.getProperties().get("traceparent"), message.getProperties().get("tracestate"),
                new String(message.getBody(), StandardCharsets.UTF_8)));
        }

        @Override
        public void consumeMessageAfter(ConsumeMessageContext context) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch received = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("traced_" + arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], "*");
        consumer.getDefaultMQPushConsumerImpl().registerConsumeMessageHook(new Extracting());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("traced_" + arguments[1]);
        producer.setNamesrvAddr(arguments[0]);
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new Injecting(arguments[3]));
        producer.start();
        Message message = new Message(arguments[1], "from Java".getBytes(StandardCharsets.UTF_8));
        System.out.printf("sent %s%n", producer.send(message, 10_000).getSendStatus());
        if (!received.await(SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nothing arrived in " + arguments[2]);
        }
        producer.shutdown();
        consumer.shutdown();
    }
}
