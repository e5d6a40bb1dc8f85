// A Java producer whose broker stands still: SIGSTOP, each kind of send at once, SIGCONT.
//
// One setting is not the default: by default, a request whose time ends closes the connection. An asynchronous send
// begun after that request, and still waiting, is then sent once more and stored twice.
//
// Arguments: NameServer, topic, the broker's process id, the milliseconds for which it is stopped. Prints a line
// "CALL;MILLISECONDS;ok" or "CALL;MILLISECONDS;EXCEPTION" for each call; the body of its message is CALL.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class SlowBroker {
    interface Call {
        void run(TransactionMQProducer producer, Message message) throws Throwable;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("com.rocketmq.remoting.client.closeSocketIfTimeout", "false");
        TransactionMQProducer producer = new TransactionMQProducer("java-slow");
        producer.setNamesrvAddr(arguments[0]);
        producer.setTransactionListener(new Committing());
        producer.start();
        Map<String, Call> calls = new LinkedHashMap<>();
        calls.put("Java: `send(msg)`", (p, m) -> p.send(m));
        calls.put("Java: `send(msg, callback)`", SlowBroker::sendAsync);
        calls.put("Java: `send(list)`", (p, m) -> p.send(Arrays.asList(m)));
        calls.put("Java: `send(msg, selector, key)`", (p, m) -> p.send(m, new SelectMessageQueueByHash(), "key"));
        calls.put("Java: `sendOneway(msg)`", (p, m) -> p.sendOneway(m));
        calls.put("Java: `sendMessageInTransaction`", (p, m) -> p.sendMessageInTransaction(m, null));
        for (int i = 0; i < 20; i++) {  // loads the classes of a send, and opens the connection
            producer.send(new Message(arguments[1], "warm".getBytes(StandardCharsets.UTF_8)), 20_000);
        }
        signal("-STOP", arguments[2]);
        Thread.sleep(200);  // on a busy machine its threads run on for some milliseconds
        Thread[] threads = new Thread[calls.size()];
        int number = 0;
        for (Map.Entry<String, Call> entry : calls.entrySet()) {
            threads[number] = new Thread(() -> time(producer, arguments[1], entry.getKey(), entry.getValue()));
            threads[number++].start();
        }
        long pause = Long.parseLong(arguments[3]);
        Thread.sleep(pause);
        if (pause > producer.getSendMsgTimeout()) {  // however late a busy machine began them, all calls time out
            join(threads);
        }
        signal("-CONT", arguments[2]);
        join(threads);
        producer.shutdown();
    }

    static void join(Thread[] threads) throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void time(TransactionMQProducer producer, String topic, String name, Call call) {
        long began = System.nanoTime();
        String end = "ok";
        try {
            call.run(producer, new Message(topic, name.getBytes(StandardCharsets.UTF_8)));
        } catch (Throwable failure) {
            end = failure.getClass().getSimpleName();
        }
        System.out.printf("%s;%d;%s%n", name, (System.nanoTime() - began) / 1_000_000, end);
    }

    static void sendAsync(TransactionMQProducer producer, Message message) throws Throwable {
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                ended.countDown();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                ended.countDown();
            }
        });
        ended.await(30, TimeUnit.SECONDS);
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    static void signal(String name, String process) throws Exception {
        new ProcessBuilder("kill", name, process).start().waitFor();
    }

    static class Committing implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
