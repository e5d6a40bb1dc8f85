// Spring's starter (rocketmq-spring-boot-starter) on a cluster: its template sends in its forms, its listeners consume.
//
// Arguments: NameServer, a word that makes names unique. Prints "sent MSGID FORM" for each send to spring_WORD, "listened ID
// NAME PRICE" for each of two orders that the test sends to ours_WORD, and "refused FORM REASON". Answers what is asked in
// asks_WORD.

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

@EnableAutoConfiguration
@Import({SpringJudge.Ours.class, SpringJudge.Answers.class, SpringJudge.Ends.class})
public class SpringJudge {
    static final CountDownLatch LISTENED = new CountDownLatch(2);

    public static class Order {
        public long id = 7;
        public String name = "chá 中";
        public BigDecimal price = new BigDecimal("12.340");
        public String note;
    }

    /** Has a consumer wait longer for answers as it starts: after 3 s Spring ends the program. */
    interface Patient extends RocketMQPushConsumerLifecycleListener {
        default void prepareStart(DefaultMQPushConsumer consumer) {
            consumer.setMqClientApiTimeout(20_000);
        }
    }

    @RocketMQMessageListener(topic = "${judge.topic}", consumerGroup = "${judge.group}")
    public static class Ours implements RocketMQListener<Order>, Patient {
        public void onMessage(Order order) {
            System.out.println("listened " + order.id + " " + order.name + " " + order.price);
            LISTENED.countDown();
        }
    }

    @RocketMQMessageListener(topic = "${judge.asks}", consumerGroup = "${judge.answering}")
    public static class Answers implements RocketMQReplyListener<String, String>, Patient {
        public String onMessage(String asked) {
            return asked + ", answered";
        }
    }

    @RocketMQTransactionListener
    public static class Ends implements RocketMQLocalTransactionListener {
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return "commit".equals(argument) ? RocketMQLocalTransactionState.COMMIT : RocketMQLocalTransactionState.ROLLBACK;
        }

        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.ROLLBACK;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String word = arguments[1];
        SpringApplication application = new SpringApplication(SpringJudge.class);
        application.setDefaultProperties(Map.of("rocketmq.name-server", arguments[0], "rocketmq.producer.group", "spring_" + word,
            "rocketmq.producer.send-message-timeout", "20000", "judge.topic", "ours_" + word, "judge.group", "readers_" + word,
            "judge.asks", "asks_" + word, "judge.answering", "answering_" + word,
            "spring.main.banner-mode", "off", "logging.level.root", "error"));
        var context = application.run();
        RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
        String topic = "spring_" + word;
        told("object", template.syncSend(topic + ":paid", MessageBuilder.withPayload(new Order())
            .setHeader(RocketMQHeaders.KEYS, "order-7 shop-2").setHeader("region", "são paulo").build()));
        told("list", template.syncSend(topic, MessageBuilder.withPayload("keys")
            .setHeader(RocketMQHeaders.KEYS, List.of("a", "b")).build()));
        told("text", template.syncSend(topic, "plain"));
        told("bytes", template.syncSend(topic, new byte[] {0, (byte) 0xff}));
        told("keyed", template.syncSendOrderly(topic, "keyed", "order-1"));
        List<Message<String>> batch = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            batch.add(MessageBuilder.withPayload("batch " + number).build());
        }
        told("batch", template.syncSend(topic, batch));
        told("delayed", template.syncSendDelayTimeMills(topic, "delayed", 1500));
        CountDownLatch answered = new CountDownLatch(1);
        template.asyncSend(topic, "async", new SendCallback() {
            public void onSuccess(SendResult result) {
                told("async", result);
                answered.countDown();
            }

            public void onException(Throwable error) {
                System.out.println("refused async " + error);
            }
        });
        answered.await(60, TimeUnit.SECONDS);
        template.sendOneWay(topic, "one-way");
        told("committed", template.sendMessageInTransaction(topic, MessageBuilder.withPayload("committed").build(), "commit"));
        told("rolled back", template.sendMessageInTransaction(topic, MessageBuilder.withPayload("rolled back").build(), "no"));
        try {
            template.syncSend(topic, MessageBuilder.withPayload("blank").setHeader("region", "").build());
        } catch (RuntimeException error) {
            System.out.println("refused blank " + error.getMessage());
        }
        if (!LISTENED.await(100, TimeUnit.SECONDS)) {
            System.out.println("refused listening");
        }
        context.close();
        System.exit(0);
    }

    static void told(String form, SendResult result) {
        System.out.println("sent " + result.getMsgId() + " " + form);
    }
}
