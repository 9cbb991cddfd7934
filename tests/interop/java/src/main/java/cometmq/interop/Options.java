package cometmq.interop;

import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.util.TypeUtils;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.RPCHook;

/** Settings of a client by their Java names: {"options": {"sendMsgTimeout": 5000}} calls setSendMsgTimeout(5000). */
final class Options {
    private Options() {
    }

    /** Requests may take this long: the machine of the tests may be busy. */
    static final int REQUEST_TIMEOUT_MS = 20_000;

    static void apply(Object target, JSONObject args) throws Exception {
        if (target instanceof ClientConfig) {
            ((ClientConfig) target).setNamesrvAddr(args.getString("namesrv"));
            ((ClientConfig) target).setMqClientApiTimeout(REQUEST_TIMEOUT_MS);
        }
        if (target instanceof DefaultMQProducer) {
            ((DefaultMQProducer) target).setSendMsgTimeout(REQUEST_TIMEOUT_MS);
        }
        JSONObject options = args.getJSONObject("options");
        if (options == null) {
            return;
        }
        for (Map.Entry<String, Object> option : options.entrySet()) {
            set(target, option.getKey(), option.getValue());
        }
    }

    /** The signing hook for {"acl": ["access key", "secret key"]}, or null. */
    static RPCHook acl(JSONObject args) {
        if (args.getJSONArray("acl") == null) {
            return null;
        }
        String accessKey = args.getJSONArray("acl").getString(0);
        return new AclClientRPCHook(new SessionCredentials(accessKey, args.getJSONArray("acl").getString(1)));
    }

    private static void set(Object target, String name, Object value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                method.invoke(target, TypeUtils.cast(value, method.getParameterTypes()[0], null));
                return;
            }
        }
        throw new IllegalArgumentException(target.getClass().getSimpleName() + " has no " + setter);
    }
}
