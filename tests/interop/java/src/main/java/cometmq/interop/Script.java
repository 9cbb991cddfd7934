package cometmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** What to answer for a message: lists of answers by key, by body, or under "*"; used up, the default holds. */
final class Script {
    private final JSONObject answers;
    private final Map<String, Integer> used = new HashMap<>();

    Script(JSONObject answers) {
        this.answers = answers == null ? new JSONObject() : answers;
    }

    synchronized String next(MessageExt message, String otherwise) {
        String text = new String(message.getBody(), StandardCharsets.UTF_8);
        String name = answers.containsKey(message.getKeys()) ? message.getKeys() : text;
        JSONArray list = answers.getJSONArray(answers.containsKey(name) ? name : "*");
        int turn = used.merge(name, 1, Integer::sum) - 1;
        return list != null && turn < list.size() ? list.getString(turn) : otherwise;
    }
}
