// Java's clients judge a cluster: each check is one feature, as a Java program uses it, and all of them run side by side.
//
// Arguments: NameServer, a word that makes names unique, the checks' names. Prints "NAME passed" or "NAME failed: REASON"
// lines. Types that moved to another package between the releases are not named.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class JudgeBroker {
    static final long SECONDS = 100;
    static final List<String> SENT = List.of("0", "1", "2", "3", "4", "5");

    interface Check {
        void run(String topic, String group) throws Exception;
    }

    static String nameserver;
    static DefaultMQProducer producer;
    static DefaultMQAdminExt admin;

    public static void main(String[] arguments) throws Exception {
        nameserver = arguments[0];
        String word = arguments[1];
        Map<String, Check> checks = new TreeMap<>();
        checks.put("broadcast", JudgeBroker::broadcast);
        checks.put("connections", JudgeBroker::connections);
        checks.put("dead-letter", JudgeBroker::deadLetter);
        checks.put("delay", (topic, group) -> delivered(topic, group, "DELAY", "1", 900));
        checks.put("lite-pull", JudgeBroker::litePull);
        checks.put("look-up", JudgeBroker::lookUp);
        checks.put("orderly", JudgeBroker::orderly);
        checks.put("sql", JudgeBroker::sql);
        checks.put("timer", (topic, group) -> delivered(topic, group, "TIMER_DELAY_MS", "2500", 1500));
        producer = new DefaultMQProducer("producers-" + word);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName("producer-" + word);
        producer.setSendMsgTimeout(20_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        admin = new DefaultMQAdminExt(15_000);
        admin.setNamesrvAddr(nameserver);
        admin.setMqClientApiTimeout(20_000);
        admin.setInstanceName("admin-" + word);
        admin.start();
        List<Thread> threads = new ArrayList<>();
        for (int i = 2; i < arguments.length; i++) {
            String name = arguments[i];
            Thread thread = new Thread(() -> {
                try {
                    checks.get(name).run("topic-" + name + "-" + word, "group-" + name + "-" + word);
                    System.out.println(name + " passed");
                } catch (Throwable error) {
                    System.out.println(name + " failed: " + String.valueOf(error).replace('\n', ' '));
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        admin.shutdown();
        producer.shutdown();
    }

    // Each member gets all messages.
    static void broadcast(String topic, String group) throws Exception {
        send(topic);
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        List<Collection<MessageExt>> seen = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            DefaultMQPushConsumer member = member(group, name);
            for (var model : member.getMessageModel().getDeclaringClass().getEnumConstants()) {
                if (model.name().equals("BROADCASTING")) {
                    member.setMessageModel(model);
                }
            }
            member.subscribe(topic, "*");
            seen.add(startConcurrent(member, ConsumeConcurrentlyStatus.CONSUME_SUCCESS));
            members.add(member);
        }
        for (Collection<MessageExt> one : seen) {
            await("a member has all", () -> sorted(one).equals(SENT));
        }
        members.forEach(DefaultMQPushConsumer::shutdown);
    }

    // A broker names the members of a group with their subscriptions, its producers, and passes on a look at a member.
    static void connections(String topic, String group) throws Exception {
        send(topic);
        DefaultMQPushConsumer member = member(group, "one");
        member.subscribe(topic, "one || two");
        startConcurrent(member, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        String id = member.buildMQClientId();
        await("the member is known", () -> {
            var found = admin.examineConsumerConnectionInfo(group);
            return found.getConnectionSet().stream().anyMatch(one -> one.getClientId().equals(id))
                && found.getSubscriptionTable().get(topic).getSubString().equals("one || two")
                && found.getMessageModel().name().equals("CLUSTERING")
                && found.getConsumeFromWhere() == ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
        });
        await("the producer is known", () -> admin.examineProducerConnectionInfo(producer.getProducerGroup(), topic)
            .getConnectionSet().stream().anyMatch(one -> one.getClientId().equals(producer.buildMQClientId())));
        await("the member tells of itself", () -> {
            var found = admin.getConsumerRunningInfo(group, id, false);
            return found.getSubscriptionSet().stream().anyMatch(one -> one.getTopic().equals(topic))
                && found.getProperties().containsKey("PROP_CONSUMER_START_TIMESTAMP");
        });
        member.shutdown();
    }

    // A message that fails comes again with its topic; after maxReconsumeTimes it is a dead letter, found by its key.
    static void deadLetter(String topic, String group) throws Exception {
        Message message = new Message(topic, "tag", "key-" + topic, "bad".getBytes(StandardCharsets.UTF_8));
        producer.send(message);
        DefaultMQPushConsumer member = member(group, "one");
        member.subscribe(topic, "*");
        member.setMaxReconsumeTimes(1);
        Collection<MessageExt> seen = startConcurrent(member, ConsumeConcurrentlyStatus.RECONSUME_LATER);
        await("a dead letter is found", () -> !found("%DLQ%" + group, "key-" + topic).isEmpty());
        MessageExt dead = found("%DLQ%" + group, "key-" + topic).get(0);
        check("bad".equals(body(dead)) && topic.equals(dead.getProperty("RETRY_TOPIC")), "the dead letter is " + dead);
        List<String> tries = seen.stream().map(one -> one.getTopic() + one.getReconsumeTimes()).collect(Collectors.toList());
        check(tries.equals(List.of(topic + "0", topic + "1")), "the tries were " + tries);
        member.shutdown();
    }

    // The message comes no earlier than it should, under its own topic.
    static void delivered(String topic, String group, String property, String value, long leastMs) throws Exception {
        Message message = new Message(topic, "later".getBytes(StandardCharsets.UTF_8));
        MessageAccessor.putProperty(message, property, value);
        long began = System.nanoTime();
        producer.send(message);
        DefaultMQPushConsumer member = member(group, "one");
        member.subscribe(topic, "*");
        Collection<MessageExt> seen = startConcurrent(member, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        await("it is delivered", () -> !seen.isEmpty());
        long ms = (System.nanoTime() - began) / 1_000_000;
        check(ms >= leastMs, "it came after " + ms + " ms");
        check(sorted(seen).equals(List.of("later")) && seen.iterator().next().getTopic().equals(topic), "came " + seen);
        member.shutdown();
    }

    // Polled, committed, and after a seek polled again.
    static void litePull(String topic, String group) throws Exception {
        send(topic);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setInstanceName("lite-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        Collection<MessageExt> seen = new ConcurrentLinkedDeque<>();
        await("all are polled", () -> seen.addAll(consumer.poll(200)) && sorted(seen).equals(SENT));
        consumer.commitSync();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        await("all are committed", () -> {
            long committed = 0;
            for (MessageQueue queue : queues) {
                committed += Math.max(0, consumer.committed(queue));
            }
            return committed == SENT.size();
        });
        for (MessageQueue queue : queues) {
            consumer.seek(queue, 0);
        }
        seen.clear();
        await("all are polled again", () -> seen.addAll(consumer.poll(200)) && sorted(seen).equals(SENT));
        consumer.shutdown();
    }

    // A message is found by its key, its unique id, and its id of address and offset.
    static void lookUp(String topic, String group) throws Exception {
        SendResult sent = producer.send(new Message(topic, "tag", "key-" + topic, "one".getBytes(StandardCharsets.UTF_8)));
        await("it is found by its key", () -> found(topic, "key-" + topic).size() == 1);
        for (String id : List.of(sent.getMsgId(), sent.getOffsetMsgId())) {
            await("it is found by " + id, () -> {
                MessageExt message = admin.viewMessage(topic, id);
                return "one".equals(body(message)) && message.getQueueOffset() == sent.getQueueOffset();
            });
        }
    }

    // The messages of a queue come one after another; one that is suspended comes again before those behind it.
    static void orderly(String topic, String group) throws Exception {
        for (String text : SENT) {
            Message message = new Message(topic, text.getBytes(StandardCharsets.UTF_8));
            producer.send(message, (queues, unused, argument) -> Collections.min(queues), null);
        }
        DefaultMQPushConsumer member = member(group, "one");
        member.subscribe(topic, "*");
        Collection<MessageExt> seen = new ConcurrentLinkedDeque<>();
        AtomicBoolean suspended = new AtomicBoolean();
        member.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            seen.addAll(messages);
            if (body(messages.get(0)).equals("2") && suspended.compareAndSet(false, true)) {
                context.setSuspendCurrentQueueTimeMillis(10);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        member.start();
        await("all came", () -> seen.size() > SENT.size());
        List<String> bodies = seen.stream().map(JudgeBroker::body).collect(Collectors.toList());
        check(bodies.equals(List.of("0", "1", "2", "2", "3", "4", "5")), "they came as " + bodies);
        member.shutdown();
    }

    // The broker evaluates the expression of the subscription.
    static void sql(String topic, String group) throws Exception {
        send(topic);
        DefaultMQPushConsumer member = member(group, "one");
        member.subscribe(topic, MessageSelector.bySql("number BETWEEN 2 AND 4 AND colour IS NULL"));
        Collection<MessageExt> seen = startConcurrent(member, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        await("the wanted ones came", () -> sorted(seen).equals(List.of("2", "3", "4")));
        member.shutdown();
    }

    static void send(String topic) throws Exception {
        for (String text : SENT) {
            Message message = new Message(topic, text.getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", text);
            producer.send(message);
        }
    }

    static DefaultMQPushConsumer member(String group, String name) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setInstanceName(name + "-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(500);  // the retry topic is made when the group is known: 30 s by default
        return consumer;
    }

    static Collection<MessageExt> startConcurrent(DefaultMQPushConsumer member, ConsumeConcurrentlyStatus status)
        throws Exception {
        Collection<MessageExt> seen = new ConcurrentLinkedDeque<>();
        member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAll(messages);
            context.setDelayLevelWhenNextConsume(1);
            return status;
        });
        member.start();
        return seen;
    }

    static List<MessageExt> found(String topic, String key) throws Exception {
        return admin.queryMessage(topic, key, 32, 0, Long.MAX_VALUE).getMessageList();
    }

    static List<String> sorted(Collection<MessageExt> messages) {
        return messages.stream().map(JudgeBroker::body).sorted().collect(Collectors.toList());
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    // What is not there yet is refused; the last refusal is the reason in the end.
    static void await(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        Exception last = null;
        while (true) {
            try {
                if (holds.call()) {
                    return;
                }
                last = null;
            } catch (Exception refused) {
                last = refused;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not within " + SECONDS + " s: " + what + ", but " + last, last);
            }
            Thread.sleep(50);
        }
    }
}
