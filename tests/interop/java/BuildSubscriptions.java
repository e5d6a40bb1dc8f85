// The subscriptions that Java's FilterAPI makes of expressions.
//
// Arguments: the file of inputs (JSON: pairs of expression and type), the file for the results: for each pair the
// heartbeat's SubscriptionData, with "now" for a subVersion that is this moment's milliseconds, or the exception's text.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

public class BuildSubscriptions {
    public static void main(String[] arguments) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(arguments[0])), StandardCharsets.UTF_8);
        Method build = filterApi().getMethod("build", String.class, String.class, String.class);
        JSONArray results = new JSONArray();
        for (Object one : JSON.parseArray(text)) {
            JSONArray pair = (JSONArray) one;
            long before = System.currentTimeMillis();
            try {
                Object data = build.invoke(null, "T", pair.getString(0), pair.getString(1));
                JSONObject members = JSON.parseObject(RemotingSerializable.toJson(data, false));
                long version = members.getLongValue("subVersion");
                if (before <= version && version <= System.currentTimeMillis()) {
                    members.put("subVersion", "now");
                }
                results.add(members);
            } catch (InvocationTargetException error) {
                results.add(error.getCause().toString());
            }
        }
        String all = JSON.toJSONString(results, SerializerFeature.BrowserCompatible, SerializerFeature.MapSortField);
        Files.write(Paths.get(arguments[1]), all.getBytes(StandardCharsets.UTF_8));
    }

    /** Its package was another one before 5.0. */
    static Class<?> filterApi() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.remoting.protocol.filter.FilterAPI");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.rocketmq.common.filter.FilterAPI");
        }
    }
}
