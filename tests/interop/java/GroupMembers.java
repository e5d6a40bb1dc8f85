// Java push consumers that join and leave groups as a test orders it: the other side of support/groups/java_members.py.
//
// Arguments: NameServer, port of the test on this machine. Reads lines from that connection: "join NAME GROUP TOPIC
// concurrent|orderly|circle", "leave NAME"; circle is concurrent, and queues are divided by circle, else by averages.
// Writes lines to it: "record NAME BROKER QUEUEID OFFSET MSGID BEGAN ENDED" for each
// call of a handler (microseconds since 1970), "owns NAME CLIENTID BROKER:QUEUEID,..." when the queues of a member have
// changed, "left NAME". Ends with the connection.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class GroupMembers {
    static final int HANDLER_MILLISECONDS = 5;
    static final int POLL_MILLISECONDS = 50;

    final Map<String, DefaultMQPushConsumer> members = new ConcurrentHashMap<>();
    final Map<String, String> topics = new ConcurrentHashMap<>();
    final Map<String, String> owned = new ConcurrentHashMap<>();
    final String nameserver;
    final PrintStream output;

    GroupMembers(String nameserver, PrintStream output) {
        this.nameserver = nameserver;
        this.output = output;
    }

    public static void main(String[] arguments) throws Exception {
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[1]))) {
            PrintStream output = new PrintStream(socket.getOutputStream(), true, StandardCharsets.UTF_8);
            GroupMembers program = new GroupMembers(arguments[0], output);
            ExecutorService tasks = Executors.newCachedThreadPool();
            Thread poller = new Thread(program::poll);
            poller.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ");
                tasks.submit(() -> program.obey(words));
            }
            tasks.shutdown();
            tasks.awaitTermination(20, TimeUnit.SECONDS);
            poller.interrupt();
            program.members.values().forEach(DefaultMQPushConsumer::shutdown);
        }
    }

    void obey(String[] words) {
        try {
            if (words[0].equals("join")) {
                start(words[1], words[2], words[3], words[4]);
            } else {
                DefaultMQPushConsumer consumer = members.remove(words[1]);
                consumer.shutdown();
                say("left " + words[1]);
            }
        } catch (Exception error) {
            String causes = "";
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                causes += ": " + cause;
            }
            say("failed " + String.join(" ", words) + causes);
        }
    }

    // On a busy machine the first request over a client's new connection sometimes fails; `start` does not try again.
    synchronized void start(String name, String group, String topic, String kind) throws Exception {
        for (int triesLeft = 2;; triesLeft--) {
            try {
                join(name, group, topic, kind);
                return;
            } catch (IllegalStateException notReached) {
                if (triesLeft == 0) {
                    throw notReached;
                }
            }
        }
    }

    void join(String name, String group, String topic, String kind) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setInstanceName(name);
        consumer.setNamesrvAddr(nameserver);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(topic, "*");
        if (kind.equals("circle")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        }
        if (kind.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                handle(name, context.getMessageQueue(), messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                handle(name, context.getMessageQueue(), messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        try {
            consumer.start();
        } catch (IllegalStateException notReached) {
            consumer.shutdown();
            throw notReached;
        }
        topics.put(name, topic);
        members.put(name, consumer);
    }

    void handle(String name, MessageQueue queue, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            long began = now();
            try {
                Thread.sleep(HANDLER_MILLISECONDS);
            } catch (InterruptedException stopped) {
                // Handled all the same: a handler that throws would send the message back, to come with another id.
                Thread.currentThread().interrupt();
            }
            say(String.format("record %s %s %d %d %s %d %d", name, queue.getBrokerName(), queue.getQueueId(),
                message.getQueueOffset(), message.getMsgId(), began, now()));
        }
    }

    void poll() {
        while (!Thread.currentThread().isInterrupted()) {
            members.forEach((name, consumer) -> {
                TreeSet<String> queues = new TreeSet<>();
                consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, process) -> {
                    if (queue.getTopic().equals(topics.get(name)) && !process.isDropped()) {
                        queues.add(queue.getBrokerName() + ":" + queue.getQueueId());
                    }
                });
                String id = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
                String line = "owns " + name + " " + id + " " + String.join(",", queues);
                if (!line.equals(owned.put(name, line))) {
                    say(line);
                }
            });
            try {
                Thread.sleep(POLL_MILLISECONDS);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    void say(String line) {
        synchronized (output) {
            output.println(line);
        }
    }

    static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
