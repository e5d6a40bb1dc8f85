// Spring Cloud Stream's RocketMQ binder on a cluster: a bridge sends in its forms, a function consumes.
//
// Arguments: NameServer, a word that makes names unique. Sends to stream_WORD and, by partition, to parts_WORD, and prints
// "listened ID NAME PRICE" for each of two orders that the test has sent to ours_WORD, "sent FORM" for each send.

import java.math.BigDecimal;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.HashMap;
import java.util.List;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.support.MessageBuilder;

@EnableAutoConfiguration
public class CloudStreamJudge {
    static final CountDownLatch LISTENED = new CountDownLatch(2);

    public static class Order {
        public long id = 7;
        public String name = "chá 中";
        public BigDecimal price = new BigDecimal("12.340");
        public String note;
    }

    @Bean
    public Consumer<Order> orders() {
        return order -> {
            System.out.println("listened " + order.id + " " + order.name + " " + order.price);
            LISTENED.countDown();
        };
    }

    public static void main(String[] arguments) throws Exception {
        String word = arguments[1];
        String stream = "spring.cloud.stream.";
        Map<String, Object> settings = new HashMap<>(Map.of("spring.main.banner-mode", "off", "logging.level.root", "error",
            "spring.cloud.function.definition", "orders", stream + "rocketmq.binder.name-server", arguments[0],
            stream + "bindings.orders-in-0.destination", "ours_" + word,
            stream + "bindings.orders-in-0.group", "readers_" + word,
            stream + "bindings.plain.destination", "stream_" + word, stream + "bindings.parts.destination", "parts_" + word,
            stream + "bindings.parts.producer.partition-key-expression", "headers['pk']",
            stream + "bindings.parts.producer.partition-count", "4"));
        for (String name : List.of("plain", "parts")) {
            settings.put(stream + "rocketmq.bindings." + name + ".producer.group", name + "_" + word);
            settings.put(stream + "rocketmq.bindings." + name + ".producer.send-msg-timeout", "20000");
        }
        SpringApplication application = new SpringApplication(CloudStreamJudge.class);
        application.setDefaultProperties(settings);
        var context = application.run();
        StreamBridge bridge = context.getBean(StreamBridge.class);
        sent("object", bridge.send("plain", MessageBuilder.withPayload(new Order()).setHeader("TAGS", "paid")
            .setHeader("KEYS", "order-7 shop-2").setHeader("region", "são paulo").setHeader("count", 5)
            .setHeader("blank", "").build()));
        sent("text", bridge.send("plain", "bare"));
        sent("bytes", bridge.send("plain", new byte[] {0, (byte) 0xff}));
        sent("delayed", bridge.send("plain", MessageBuilder.withPayload("later").setHeader("DELAY", 1).build()));
        for (int number = 1; number <= 4; number++) {
            String key = "order-" + number;
            sent(key, bridge.send("parts", MessageBuilder.withPayload(key).setHeader("pk", key).build()));
        }
        if (!LISTENED.await(100, TimeUnit.SECONDS)) {
            System.out.println("refused listening");
        }
        context.close();
        System.exit(0);
    }

    static void sent(String form, boolean done) {
        System.out.println((done ? "sent " : "refused ") + form);
    }
}
