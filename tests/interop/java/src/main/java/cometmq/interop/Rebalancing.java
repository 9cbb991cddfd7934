package cometmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** The client's own allocation strategies, as a function: the reference for ours. */
final class Rebalancing {
    private Rebalancing() {
    }

    static void register(Peer peer) {
        peer.on("allocate", Rebalancing::allocate);
    }

    private static Object allocate(JSONObject args) {
        AllocateMessageQueueStrategy strategy = strategy(args.getString("strategy"));
        List<MessageQueue> queues = Messages.queues(args.getJSONArray("queues"));
        JSONArray array = args.getJSONArray("ids");
        List<String> ids = array.toJavaList(String.class);
        Map<String, Object> shares = new LinkedHashMap<>();
        for (String id : ids) {
            shares.put(id, Messages.queuesToJson(strategy.allocate("group", id, queues, ids)));
        }
        return shares;
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            default:
                return new AllocateMessageQueueConsistentHash();
        }
    }
}
