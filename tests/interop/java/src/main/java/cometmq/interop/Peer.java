package cometmq.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * The real Java client, driven from outside: one command per line on stdin (JSON), one answer per line on stdout,
 * and events (received messages, transaction checks) between the answers.
 *
 * <p>{"id": 1, "do": "producer.start", ...} is answered by {"id": 1, "ok": ...} or {"id": 1, "error": {...}}.
 * Commands run in threads of their own, so that a blocking poll holds up nothing else.
 */
public final class Peer {
    interface Command {
        Object run(JSONObject args) throws Exception;
    }

    private static final PrintStream PROTOCOL = System.out;
    private final Map<String, Command> commands = new LinkedHashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "command");
        thread.setDaemon(true);
        return thread;
    });

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // whatever a library prints must not get between the lines of the protocol
        Peer peer = new Peer();
        Producers.register(peer);
        PushConsumers.register(peer);
        LitePulls.register(peer);
        PullConsumers.register(peer);
        Admin.register(peer);
        Rebalancing.register(peer);
        peer.serve();
    }

    void on(String name, Command command) {
        commands.put(name, command);
    }

    void event(String kind, String source, Map<String, ?> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", kind);
        line.put("source", source);
        line.putAll(fields);
        write(line);
    }

    private void serve() throws Exception {
        write(Map.of("event", "ready", "source", "peer", "pid", ProcessHandle.current().pid()));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            threads.execute(() -> answer(request));
        }
        Runtime.getRuntime().halt(0); // the test session is over; nothing here is worth a slow shutdown
    }

    private void answer(JSONObject request) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", request.get("id"));
        try {
            Command command = commands.get(request.getString("do"));
            if (command == null) {
                throw new IllegalArgumentException("unknown command " + request.getString("do"));
            }
            line.put("ok", command.run(request));
        } catch (Throwable e) {
            line.put("error", describe(e));
        }
        write(line);
    }

    static Map<String, Object> describe(Throwable e) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("type", e.getClass().getSimpleName());
        error.put("message", String.valueOf(e.getMessage()));
        error.put("code", codeOf(e));
        if (e.getCause() != null && e.getCause() != e) {
            error.put("cause", describe(e.getCause()));
        }
        return error;
    }

    private static Integer codeOf(Throwable e) {
        if (e instanceof MQBrokerException) {
            return ((MQBrokerException) e).getResponseCode();
        }
        return e instanceof MQClientException ? ((MQClientException) e).getResponseCode() : null;
    }

    private static void write(Object line) {
        String text = JSON.toJSONString(line, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect);
        synchronized (PROTOCOL) {
            byte[] bytes = (text + "\n").getBytes(StandardCharsets.UTF_8);
            PROTOCOL.write(bytes, 0, bytes.length);
            PROTOCOL.flush();
        }
    }
}
