package cometmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageQueue;

/** The old pull consumer: single pulls from a queue at an offset, stored offsets, send-back. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Facades<DefaultMQPullConsumer> consumers = new Facades<>();

    private PullConsumers() {
    }

    static void register(Peer peer) {
        PullConsumers self = new PullConsumers();
        peer.on("pull.start", self::start);
        peer.on("pull.stop", self::stop);
        peer.on("pull.pull", self::pull);
        peer.on("pull.queues", args -> Messages.queuesToJson(
            self.consumers.get(args).fetchSubscribeMessageQueues(args.getString("topic"))));
        peer.on("pull.offset", args -> self.consumers.get(args).fetchConsumeOffset(Messages.queue(args), true));
        peer.on("pull.setOffset", self::setOffset);
        peer.on("pull.sendBack", self::sendBack);
    }

    private Object start(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.getString("group"), Options.acl(args));
        Options.apply(consumer, args);
        consumer.start();
        consumers.put(args, consumer);
        return consumer.buildMQClientId();
    }

    private Object stop(JSONObject args) {
        consumers.remove(args).shutdown();
        return null;
    }

    private Object pull(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(args);
        MessageQueue queue = Messages.queue(args);
        long offset = args.getLongValue("offset");
        int count = args.getIntValue("count");
        PullResult result;
        if (args.containsKey("sql")) {
            result = consumer.pull(queue, MessageSelector.bySql(args.getString("sql")), offset, count);
        } else if (args.getBooleanValue("block")) {
            result = consumer.pullBlockIfNotFound(queue, args.getString("tags"), offset, count);
        } else {
            result = consumer.pull(queue, args.getString("tags"), offset, count);
        }
        return toJson(result);
    }

    private static Map<String, Object> toJson(PullResult result) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("status", result.getPullStatus().name());
        json.put("next", result.getNextBeginOffset());
        json.put("min", result.getMinOffset());
        json.put("max", result.getMaxOffset());
        json.put("messages", Messages.toJson(result.getMsgFoundList()));
        return json;
    }

    private Object setOffset(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(args);
        consumer.updateConsumeOffset(Messages.queue(args), args.getLongValue("offset"));
        consumer.persist(Messages.queue(args));
        return null;
    }

    private Object sendBack(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(args);
        PullResult result = consumer.pull(Messages.queue(args), "*", args.getLongValue("offset"), 1);
        consumer.sendMessageBack(result.getMsgFoundList().get(0), args.getIntValue("level"), args.getString("broker"));
        return null;
    }
}
