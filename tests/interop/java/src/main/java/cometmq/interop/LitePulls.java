package cometmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** Lite pull consumers: subscribe or assign, poll, seek, commit. */
final class LitePulls {
    private final Facades<DefaultLitePullConsumer> consumers = new Facades<>();

    private LitePulls() {
    }

    static void register(Peer peer) {
        LitePulls self = new LitePulls();
        peer.on("lite.start", self::start);
        peer.on("lite.stop", self::stop);
        peer.on("lite.poll", args -> Messages.toJson(self.consumers.get(args).poll(args.getLongValue("timeoutMs"))));
        peer.on("lite.commit", self::commit);
        peer.on("lite.committed", args -> self.consumers.get(args).committed(Messages.queue(args)));
        peer.on("lite.assignment", args -> Messages.queuesToJson(self.consumers.get(args).assignment()));
        peer.on("lite.fetchQueues", args -> Messages.queuesToJson(
            self.consumers.get(args).fetchMessageQueues(args.getString("topic"))));
        peer.on("lite.offsetForTimestamp", args -> self.consumers.get(args)
            .offsetForTimestamp(Messages.queue(args), args.getLongValue("timestamp")));
        peer.on("lite.seek", self::seek);
    }

    private Object start(JSONObject args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(null, args.getString("group"), Options.acl(args));
        Options.apply(consumer, args);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.getString("from")));
        if (args.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (args.getJSONObject("subscriptions") != null) {
            subscribe(consumer, args);
        }
        consumer.start();
        if (args.getJSONArray("assign") != null) {
            consumer.assign(Messages.queues(args.getJSONArray("assign")));
        }
        consumers.put(args, consumer);
        return consumer.buildMQClientId();
    }

    private static void subscribe(DefaultLitePullConsumer consumer, JSONObject args) throws Exception {
        for (Map.Entry<String, Object> item : args.getJSONObject("subscriptions").entrySet()) {
            if (item.getValue() instanceof JSONObject) {
                String sql = ((JSONObject) item.getValue()).getString("sql");
                consumer.subscribe(item.getKey(), MessageSelector.bySql(sql));
            } else {
                consumer.subscribe(item.getKey(), String.valueOf(item.getValue()));
            }
        }
    }

    private Object stop(JSONObject args) {
        consumers.remove(args).shutdown();
        return null;
    }

    private Object commit(JSONObject args) {
        consumers.get(args).commitSync();
        return null;
    }

    /** "to" is an offset, "begin" or "end". */
    private Object seek(JSONObject args) throws Exception {
        DefaultLitePullConsumer consumer = consumers.get(args);
        MessageQueue queue = Messages.queue(args);
        String to = args.getString("to");
        if (to.equals("begin")) {
            consumer.seekToBegin(queue);
        } else if (to.equals("end")) {
            consumer.seekToEnd(queue);
        } else {
            consumer.seek(queue, Long.parseLong(to));
        }
        return null;
    }
}
