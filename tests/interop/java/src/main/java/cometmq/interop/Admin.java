package cometmq.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The admin client: preparation of topics, message queries, offsets; and the mqadmin tool itself. */
final class Admin {
    private final Map<String, DefaultMQAdminExt> admins = new ConcurrentHashMap<>();
    private final Peer peer;

    private Admin(Peer peer) {
        this.peer = peer;
    }

    static void register(Peer peer) {
        Admin self = new Admin(peer);
        peer.on("mqadmin", self::mqadmin);
        peer.on("admin.close", self::close);
        peer.on("admin.createTopic", self::createTopic);
        peer.on("admin.route", args -> JSON.toJSON(self.admin(args).examineTopicRouteInfo(args.getString("topic"))));
        peer.on("admin.maxOffset", args -> self.admin(args).maxOffset(Messages.queue(args)));
        peer.on("admin.minOffset", args -> self.admin(args).minOffset(Messages.queue(args)));
        peer.on("admin.earliest", args -> self.admin(args).earliestMsgStoreTime(Messages.queue(args)));
        peer.on("admin.searchOffset", args -> self.admin(args)
            .searchOffset(Messages.queue(args), args.getLongValue("timestamp")));
        peer.on("admin.byKey", self::byKey);
        peer.on("admin.byUniqueKey", args -> Messages.toJson(self.admin(args)
            .queryMessageByUniqKey(args.getString("topic"), args.getString("key"), 32, 0, Long.MAX_VALUE)
            .getMessageList()));
        peer.on("admin.byId", args -> Messages.toJson(self.admin(args).viewMessage(args.getString("msgId"))));
        peer.on("admin.byIdInTopic", args -> Messages.toJson(self.admin(args)
            .viewMessage(args.getString("topic"), args.getString("msgId"))));
        peer.on("admin.progress", self::progress);
        peer.on("admin.consumers", args -> JSON.toJSON(self.admin(args)
            .examineConsumerConnectionInfo(args.getString("group"))));
    }

    private DefaultMQAdminExt admin(JSONObject args) throws Exception {
        String address = args.getString("namesrv");
        String name = address + args.getJSONArray("acl") + args.getBooleanValue("tls");
        synchronized (admins) {
            DefaultMQAdminExt admin = admins.get(name);
            if (admin == null) {
                admin = new DefaultMQAdminExt(Options.acl(args), Options.REQUEST_TIMEOUT_MS);
                admin.setInstanceName("admin" + System.nanoTime());
                admin.setNamesrvAddr(address);
                admin.setUseTLS(args.getBooleanValue("tls"));
                admin.start();
                admins.put(name, admin);
            }
            return admin;
        }
    }

    private Object close(JSONObject args) {
        synchronized (admins) {
            admins.keySet().removeIf(name -> {
                boolean of = name.startsWith(args.getString("namesrv"));
                if (of) {
                    admins.get(name).shutdown();
                }
                return of;
            });
        }
        return null;
    }

    /** Creates the topic on the master of every broker of the cluster, or of the one named. */
    private Object createTopic(JSONObject args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        TopicConfig config = new TopicConfig(args.getString("topic"));
        config.setReadQueueNums(args.getIntValue("queues"));
        config.setWriteQueueNums(args.getIntValue("queues"));
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            String only = args.getString("broker");
            if (only == null || only.equals(broker.getBrokerName())) {
                admin.createAndUpdateTopicConfig(broker.getBrokerAddrs().get(0L), config);
            }
        }
        return null;
    }

    private Object byKey(JSONObject args) throws Exception {
        long begin = args.getLongValue("begin");
        long end = args.containsKey("end") ? args.getLongValue("end") : Long.MAX_VALUE;
        QueryResult result = admin(args).queryMessage(args.getString("topic"), args.getString("key"),
            args.getIntValue("count"), begin, end);
        return Messages.toJson(result.getMessageList());
    }

    private Object progress(JSONObject args) throws Exception {
        ConsumeStats stats = admin(args).examineConsumeStats(args.getString("group"), args.getString("topic"));
        Map<String, Object> rows = new LinkedHashMap<>();
        List<MessageQueue> queues = new java.util.ArrayList<>(stats.getOffsetTable().keySet());
        Collections.sort(queues);
        for (MessageQueue queue : queues) {
            rows.put(queue.getTopic() + "@" + queue.getBrokerName() + "@" + queue.getQueueId(),
                List.of(stats.getOffsetTable().get(queue).getBrokerOffset(),
                    stats.getOffsetTable().get(queue).getConsumerOffset()));
        }
        return rows;
    }

    /** Runs one mqadmin command line in this process; the answer is what it printed. One at a time: it owns stdout. */
    private synchronized Object mqadmin(JSONObject args) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        try {
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            Tool.run(args.getJSONArray("argv").toArray(new String[0]));
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(oldOut);
            System.setErr(oldErr);
        }
        return Map.of("out", out.toString(StandardCharsets.UTF_8), "err", err.toString(StandardCharsets.UTF_8));
    }

    /** The tool keeps its command objects, and some of these work only once: each run starts with new ones. */
    private static final class Tool extends MQAdminStartup {
        static void run(String[] argv) {
            subCommandList.clear();
            main0(argv, null);
        }
    }
}
