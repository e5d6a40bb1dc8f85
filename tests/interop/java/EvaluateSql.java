// What RocketMQ's own filter makes of SQL92 expressions over properties.
//
// Arguments: the file of cases (JSON: pairs of an expression and a list of property maps), the file for the results: for
// each case a letter for each map (T true, F false, N null, X an exception), or null if the expression is refused.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.FilterSpi;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

public class EvaluateSql {
    public static void main(String[] arguments) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(arguments[0])), StandardCharsets.UTF_8);
        FilterSpi filter = FilterFactory.INSTANCE.get("SQL92");
        JSONArray results = new JSONArray();
        for (Object one : JSON.parseArray(text)) {
            JSONArray pair = (JSONArray) one;
            try {
                results.add(letters(filter.compile(pair.getString(0)), pair.getJSONArray(1)));
            } catch (MQFilterException refused) {
                results.add(null);
            }
        }
        String all = results.toString(com.alibaba.fastjson.serializer.SerializerFeature.WriteMapNullValue);
        Files.write(Paths.get(arguments[1]), all.getBytes(StandardCharsets.UTF_8));
    }

    static String letters(Expression expression, JSONArray messages) {
        StringBuilder letters = new StringBuilder();
        for (Object one : messages) {
            JSONObject properties = (JSONObject) one;
            try {
                Object value = expression.evaluate(new Properties(properties));
                letters.append(value == null ? 'N' : !(value instanceof Boolean) ? '?' : (Boolean) value ? 'T' : 'F');
            } catch (Throwable error) {
                letters.append('X');
            }
        }
        return letters.toString();
    }

    static class Properties implements EvaluationContext {
        final Map<String, Object> properties;

        Properties(Map<String, Object> properties) {
            this.properties = properties;
        }

        public Object get(String name) {
            return properties.get(name);
        }

        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
