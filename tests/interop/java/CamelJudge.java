// Camel's component for RocketMQ on a cluster: a template sends, a route consumes.
//
// Arguments: NameServer, a word that makes names unique. Sends to camel_WORD, and prints "sent FORM" or "refused FORM ERROR"
// for each send, and "consumed TAG KEY REGION BODY" for each of two messages that the test has sent to ours_WORD.

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;

public class CamelJudge {
    static final CountDownLatch CONSUMED = new CountDownLatch(2);

    public static void main(String[] arguments) throws Exception {
        String word = arguments[1];
        String servers = "?namesrvAddr=" + arguments[0];
        DefaultCamelContext context = new DefaultCamelContext();
        context.addRoutes(new RouteBuilder() {
            public void configure() {
                from("rocketmq:ours_" + word + servers + "&consumerGroup=readers_" + word).process(exchange -> {
                    var message = exchange.getMessage();
                    System.out.println("consumed " + message.getHeader("CamelRockerMQTag") + " "
                        + message.getHeader("CamelRockerMQKey") + " " + message.getHeader("region") + " "
                        + message.getBody(String.class));
                    CONSUMED.countDown();
                });
            }
        });
        context.start();
        ProducerTemplate template = context.createProducerTemplate();
        String to = "rocketmq:camel_" + word + servers + "&producerGroup=senders_" + word;
        send(template, to, "text", "chá 中", Map.of("CamelRockerMQOverrideTag", "paid",
            "CamelRockerMQOverrideMessageKey", "order-7", "region", "são paulo"));
        send(template, to, "bytes", new byte[] {0, (byte) 0xff}, Map.of());
        send(template, to, "map", Map.of("id", 7), Map.of());
        if (!CONSUMED.await(100, TimeUnit.SECONDS)) {
            System.out.println("refused consuming");
        }
        context.stop();
        System.exit(0);
    }

    static void send(ProducerTemplate template, String to, String form, Object body, Map<String, Object> headers) {
        try {
            template.sendBodyAndHeaders(to, body, headers);
            System.out.println("sent " + form);
        } catch (RuntimeException error) {
            System.out.println("refused " + form + " " + error.getCause().getClass().getSimpleName());
        }
    }
}
