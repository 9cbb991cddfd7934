package cometmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers: every way of sending that the 4.9 client has. */
final class Producers {
    private static final long ASYNC_WAIT_SECONDS = 30;
    private static final MessageQueueSelector BY_HASH = new SelectMessageQueueByHash();
    private final Facades<DefaultMQProducer> producers = new Facades<>();
    private final Peer peer;

    private Producers(Peer peer) {
        this.peer = peer;
    }

    static void register(Peer peer) {
        Producers self = new Producers(peer);
        peer.on("producer.start", self::start);
        peer.on("producer.stop", self::stop);
        peer.on("producer.send", self::send);
        peer.on("producer.sendMany", self::sendMany);
        peer.on("producer.sendAsync", self::sendAsync);
        peer.on("producer.sendOneway", self::sendOneway);
        peer.on("producer.sendBatch", self::sendBatch);
        peer.on("producer.sendInTransaction", self::sendInTransaction);
        peer.on("producer.request", self::request);
        peer.on("producer.queues", args -> Messages.queuesToJson(
            self.producers.get(args).fetchPublishMessageQueues(args.getString("topic"))));
    }

    private Object start(JSONObject args) throws Exception {
        DefaultMQProducer producer = create(args);
        Options.apply(producer, args);
        producer.start();
        producers.put(args, producer);
        return producer.buildMQClientId();
    }

    private DefaultMQProducer create(JSONObject args) {
        String group = args.getString("group");
        if (args.getJSONObject("checks") != null) {
            TransactionMQProducer producer = new TransactionMQProducer(null, group, Options.acl(args));
            producer.setTransactionListener(new ScriptedTransactions(args));
            return producer;
        }
        boolean trace = args.getBooleanValue("trace");
        return new DefaultMQProducer(group, Options.acl(args), trace, args.getString("traceTopic"));
    }

    private Object stop(JSONObject args) {
        producers.remove(args).shutdown();
        return null;
    }

    private Object send(JSONObject args) throws Exception {
        return Messages.toJson(sendOne(producers.get(args), args.getJSONObject("message"), args));
    }

    private static SendResult sendOne(DefaultMQProducer producer, JSONObject json, JSONObject args) throws Exception {
        Message message = Messages.fromJson(json);
        if (args.containsKey("queue")) {
            return producer.send(message, Messages.queue(args.getJSONObject("queue")));
        }
        String orderingKey = json.getString("orderingKey");
        return orderingKey == null ? producer.send(message) : producer.send(message, BY_HASH, orderingKey);
    }

    /** Sends in order and goes on after failures: each item of the answer is a result or {"error": ...}. */
    private Object sendMany(JSONObject args) {
        DefaultMQProducer producer = producers.get(args);
        JSONArray messages = args.getJSONArray("messages");
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            try {
                results.add(Messages.toJson(sendOne(producer, messages.getJSONObject(i), args)));
            } catch (Exception e) {
                results.add(Map.of("error", Peer.describe(e)));
            }
        }
        return results;
    }

    private Object sendAsync(JSONObject args) throws Exception {
        DefaultMQProducer producer = producers.get(args);
        List<CompletableFuture<SendResult>> futures = new ArrayList<>();
        for (Message message : Messages.listFromJson(args.getJSONArray("messages"))) {
            CompletableFuture<SendResult> future = new CompletableFuture<>();
            futures.add(future);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    future.complete(result);
                }

                @Override
                public void onException(Throwable e) {
                    future.completeExceptionally(e);
                }
            });
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<SendResult> future : futures) {
            results.add(Messages.toJson(future.get(ASYNC_WAIT_SECONDS, TimeUnit.SECONDS)));
        }
        return results;
    }

    private Object sendOneway(JSONObject args) throws Exception {
        for (Message message : Messages.listFromJson(args.getJSONArray("messages"))) {
            producers.get(args).sendOneway(message);
        }
        return null;
    }

    private Object sendBatch(JSONObject args) throws Exception {
        List<Message> messages = Messages.listFromJson(args.getJSONArray("messages"));
        return Messages.toJson(producers.get(args).send(messages));
    }

    private Object sendInTransaction(JSONObject args) throws Exception {
        Message message = Messages.fromJson(args.getJSONObject("message"));
        return Messages.toJson(producers.get(args).sendMessageInTransaction(message, args.getString("local")));
    }

    private Object request(JSONObject args) throws Exception {
        Message message = Messages.fromJson(args.getJSONObject("message"));
        Message reply = producers.get(args).request(message, args.getLongValue("timeoutMs"));
        return Messages.toJson((MessageExt) reply);
    }

    /** The local transaction answers what the command said; a check answers from the script of the message's key. */
    private final class ScriptedTransactions implements TransactionListener {
        private final String source;
        private final Script checks;

        ScriptedTransactions(JSONObject args) {
            source = args.getString("name");
            checks = new Script(args.getJSONObject("checks"));
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object local) {
            return LocalTransactionState.valueOf(String.valueOf(local));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String state = checks.next(message, "UNKNOW");
            Map<String, Object> fields = Messages.toJson(message);
            fields.put("answer", state);
            peer.event("check", source, fields);
            return LocalTransactionState.valueOf(state);
        }
    }
}
