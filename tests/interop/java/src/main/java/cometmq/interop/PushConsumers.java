package cometmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * Push consumers with a scripted listener. Every delivery becomes an event "message" of the consumer.
 *
 * <p>Answers of a script: OK, LATER, LATER:n (n = delay level, -1 = dead letters), THROW, NULL, SLEEP:ms, REPLY:text.
 */
@SuppressWarnings("deprecation")
final class PushConsumers {
    private final Facades<DefaultMQPushConsumer> consumers = new Facades<>();
    private final AtomicLong deliveries = new AtomicLong();
    private final Peer peer;

    private PushConsumers(Peer peer) {
        this.peer = peer;
    }

    static void register(Peer peer) {
        PushConsumers self = new PushConsumers(peer);
        peer.on("push.start", self::start);
        peer.on("push.stop", self::stop);
        peer.on("push.consumed", self::consumed);
        peer.on("push.queues", self::queues);
        peer.on("push.suspend", args -> {
            self.consumers.get(args).suspend();
            return null;
        });
        peer.on("push.resume", args -> {
            self.consumers.get(args).resume();
            return null;
        });
        peer.on("push.subscribe", args -> {
            subscribe(self.consumers.get(args), args);
            return null;
        });
    }

    private Object start(JSONObject args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(null, args.getString("group"), Options.acl(args),
            new AllocateMessageQueueAveragely(), args.getBooleanValue("trace"), args.getString("traceTopic"));
        Options.apply(consumer, args);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.getString("from")));
        if (args.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        subscribe(consumer, args);
        listen(consumer, args);
        consumer.start();
        consumers.put(args, consumer);
        return consumer.buildMQClientId();
    }

    /** "subscriptions": {"topic": "tags"} or {"topic": {"sql": "expression"}}. */
    private static void subscribe(DefaultMQPushConsumer consumer, JSONObject args) throws Exception {
        for (Map.Entry<String, Object> item : args.getJSONObject("subscriptions").entrySet()) {
            if (item.getValue() instanceof JSONObject) {
                String sql = ((JSONObject) item.getValue()).getString("sql");
                consumer.subscribe(item.getKey(), MessageSelector.bySql(sql));
            } else {
                consumer.subscribe(item.getKey(), String.valueOf(item.getValue()));
            }
        }
    }

    private void listen(DefaultMQPushConsumer consumer, JSONObject args) throws Exception {
        Listener listener = new Listener(args);
        if (args.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) listener::orderly);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) listener::concurrently);
        }
    }

    private Object stop(JSONObject args) {
        consumers.remove(args).shutdown();
        return null;
    }

    /** The queues that the consumer holds now, retry topic left out. */
    private Object queues(JSONObject args) {
        List<MessageQueue> held = new ArrayList<>();
        for (MessageQueue queue : consumers.get(args).getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                held.add(queue);
            }
        }
        return Messages.queuesToJson(held);
    }

    /** How many messages its offsets count as consumed, retry topic left out; they begin at 0. */
    private Object consumed(JSONObject args) {
        DefaultMQPushConsumerImpl consumer = consumers.get(args).getDefaultMQPushConsumerImpl();
        long count = 0;
        for (MessageQueue queue : consumer.getRebalanceImpl().getProcessQueueTable().keySet()) {
            long offset = consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
            count += queue.getTopic().startsWith("%RETRY%") ? 0 : Math.max(offset, 0);
        }
        return count;
    }

    private final class Listener {
        private final String source;
        private final Script script;
        private final DefaultMQProducer replies;

        Listener(JSONObject args) throws Exception {
            source = args.getString("name");
            script = new Script(args.getJSONObject("script"));
            replies = args.getBooleanValue("replies") ? replyProducer(args) : null;
        }

        private DefaultMQProducer replyProducer(JSONObject args) throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer(args.getString("group") + "_replies", Options.acl(args));
            producer.setNamesrvAddr(args.getString("namesrv"));
            producer.start();
            return producer;
        }

        ConsumeConcurrentlyStatus concurrently(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            String answer = answer(messages);
            if (answer.startsWith("LATER:")) {
                context.setDelayLevelWhenNextConsume(Integer.parseInt(answer.substring(6)));
            }
            if (answer.equals("NULL")) {
                return null;
            }
            return answer.startsWith("LATER") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        ConsumeOrderlyStatus orderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
            String answer = answer(messages);
            if (answer.startsWith("LATER:")) {
                context.setSuspendCurrentQueueTimeMillis(Long.parseLong(answer.substring(6)));
            }
            return answer.startsWith("LATER") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        }

        /** One event per message; the script of the first message speaks for the batch. */
        private String answer(List<MessageExt> messages) {
            String answer = script.next(messages.get(0), "OK");
            for (MessageExt message : messages) {
                Map<String, Object> fields = Messages.toJson(message);
                fields.put("answer", answer);
                fields.put("delivery", deliveries.incrementAndGet());
                fields.put("receivedAt", System.currentTimeMillis());
                peer.event("message", source, fields);
            }
            act(answer, messages.get(0));
            return answer;
        }

        private void act(String answer, MessageExt message) {
            try {
                if (answer.equals("THROW")) {
                    throw new IllegalStateException("the script says so");
                } else if (answer.startsWith("SLEEP:")) {
                    Thread.sleep(Long.parseLong(answer.substring(6)));
                } else if (answer.startsWith("REPLY:")) {
                    replies.send(MessageUtil.createReplyMessage(message, answer.substring(6).getBytes("UTF-8")));
                }
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                peer.event("failure", source, Peer.describe(e));
            }
        }
    }
}
