package cometmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and send results from and to JSON. */
final class Messages {
    private static final int BODY_TEXT_MAX_BYTES = 4096; // longer bodies are told by length and CRC

    private Messages() {
    }

    static Message fromJson(JSONObject json) {
        Message message = new Message(json.getString("topic"), body(json));
        if (json.containsKey("tags")) {
            message.setTags(json.getString("tags"));
        }
        if (json.containsKey("keys")) {
            message.setKeys(json.getString("keys"));
        }
        if (json.containsKey("flag")) {
            message.setFlag(json.getIntValue("flag"));
        }
        if (json.containsKey("delay")) {
            message.setDelayTimeLevel(json.getIntValue("delay"));
        }
        if (json.containsKey("wait")) {
            message.setWaitStoreMsgOK(json.getBooleanValue("wait"));
        }
        JSONObject properties = json.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, String.valueOf(value)));
        }
        return message;
    }

    /** "body" is text, "base64" bytes, "size" a compressible body of that many bytes. */
    private static byte[] body(JSONObject json) {
        if (json.containsKey("base64")) {
            return Base64.getDecoder().decode(json.getString("base64"));
        }
        if (json.containsKey("size")) {
            byte[] bytes = new byte[json.getIntValue("size")];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) ('a' + i % 23);
            }
            return bytes;
        }
        return json.getString("body").getBytes(StandardCharsets.UTF_8);
    }

    static List<Message> listFromJson(JSONArray array) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            messages.add(fromJson(array.getJSONObject(i)));
        }
        return messages;
    }

    static Map<String, Object> toJson(MessageExt message) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("msgId", message.getMsgId());
        json.put("offsetMsgId", offsetMsgId(message));
        json.put("uniqKey", MessageClientIDSetter.getUniqID(message));
        json.put("topic", message.getTopic());
        json.put("broker", message.getBrokerName());
        json.put("queue", message.getQueueId());
        json.put("offset", message.getQueueOffset());
        json.put("physicalOffset", message.getCommitLogOffset());
        json.put("storeSize", message.getStoreSize());
        json.put("keys", message.getKeys());
        json.put("tags", message.getTags());
        json.put("flag", message.getFlag());
        json.put("sysFlag", message.getSysFlag());
        json.put("bodyCrc", message.getBodyCRC());
        json.put("reconsumeTimes", message.getReconsumeTimes());
        json.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        json.put("bornTimestamp", message.getBornTimestamp());
        json.put("storeTimestamp", message.getStoreTimestamp());
        json.put("bornHost", String.valueOf(message.getBornHost()));
        json.put("storeHost", String.valueOf(message.getStoreHost()));
        json.put("properties", message.getProperties());
        putBody(json, message.getBody());
        return json;
    }

    private static String offsetMsgId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
    }

    private static void putBody(Map<String, Object> json, byte[] body) {
        byte[] bytes = body == null ? new byte[0] : body;
        json.put("size", bytes.length);
        json.put("crc", UtilAll.crc32(bytes));
        if (bytes.length <= BODY_TEXT_MAX_BYTES) {
            json.put("body", new String(bytes, StandardCharsets.UTF_8));
        }
    }

    static List<Object> toJson(Collection<MessageExt> messages) {
        List<Object> list = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> list.add(toJson(message)));
        }
        return list;
    }

    static Map<String, Object> toJson(SendResult result) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("status", result.getSendStatus().name());
        json.put("msgId", result.getMsgId());
        json.put("offsetMsgId", result.getOffsetMsgId());
        json.put("queueOffset", result.getQueueOffset());
        json.put("transactionId", result.getTransactionId());
        json.put("regionId", result.getRegionId());
        json.put("traceOn", result.isTraceOn());
        if (result.getMessageQueue() != null) {
            json.putAll(toJson(result.getMessageQueue()));
        }
        if (result instanceof TransactionSendResult) {
            json.put("localState", String.valueOf(((TransactionSendResult) result).getLocalTransactionState()));
        }
        return json;
    }

    static Map<String, Object> toJson(MessageQueue queue) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("topic", queue.getTopic());
        json.put("broker", queue.getBrokerName());
        json.put("queue", queue.getQueueId());
        return json;
    }

    static List<Object> queuesToJson(Collection<MessageQueue> queues) {
        List<Object> list = new ArrayList<>();
        queues.stream().sorted().forEach(queue -> list.add(toJson(queue)));
        return list;
    }

    /** A queue from {"topic":, "broker":, "queue":}. */
    static MessageQueue queue(JSONObject json) {
        return new MessageQueue(json.getString("topic"), json.getString("broker"), json.getIntValue("queue"));
    }

    static List<MessageQueue> queues(JSONArray array) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            queues.add(queue(array.getJSONObject(i)));
        }
        return queues;
    }
}
