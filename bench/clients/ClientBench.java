import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The Java client of RocketMQ 4.9.7 under the same load as ours: send with many threads, or consume a topic. */
public final class ClientBench {
    public static void main(String[] args) throws Exception {
        String namesrv = args[1];
        String topic = args[2];
        int warm = Integer.parseInt(args[3]);
        int count = Integer.parseInt(args[4]);
        if (args[0].equals("send")) {
            send(namesrv, topic, warm, count, Integer.parseInt(args[5]), Integer.parseInt(args[6]));
        } else {
            consume(namesrv, topic, count);
        }
        System.exit(0);
    }

    private static void send(String namesrv, String topic, int warm, int count, int threads, int size)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-bench");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30000);
        producer.start();
        run(producer, topic, warm, threads, size);
        long began = System.nanoTime();
        run(producer, topic, count, threads, size);
        report(count, System.nanoTime() - began);
        producer.shutdown();
    }

    private static void run(DefaultMQProducer producer, String topic, int count, int threads, int size)
            throws Exception {
        AtomicLong left = new AtomicLong(count);
        CountDownLatch done = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                byte[] body = new byte[size];
                try {
                    while (left.getAndDecrement() > 0) {
                        producer.send(new Message(topic, body));
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                } finally {
                    done.countDown();
                }
            }).start();
        }
        done.await();
    }

    private static void consume(String namesrv, String topic, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-bench-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong got = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        report(count, System.nanoTime() - first.get());
        consumer.shutdown();
    }

    private static void report(int count, long nanos) {
        System.out.println("RATE " + Math.round(count * 1e9 / nanos));
    }
}
