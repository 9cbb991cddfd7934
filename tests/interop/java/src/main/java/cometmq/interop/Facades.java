package cometmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Started client objects of one kind by the name that the test gave them. */
final class Facades<T> {
    private final Map<String, T> byName = new ConcurrentHashMap<>();

    void put(JSONObject args, T facade) {
        byName.put(args.getString("name"), facade);
    }

    T get(JSONObject args) {
        T facade = byName.get(args.getString("name"));
        if (facade == null) {
            throw new IllegalArgumentException("nothing was started under the name " + args.getString("name"));
        }
        return facade;
    }

    T remove(JSONObject args) {
        T facade = get(args);
        byName.remove(args.getString("name"));
        return facade;
    }
}
