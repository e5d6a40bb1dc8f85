// Java's own allocation of queues, for inputs of a file.
//
// Arguments: the file of cases (JSON), the file for the results. For each case: the order of its queues and client ids,
// and for each strategy the queues of each member, then those of a client that is no member; queues as their places
// in the sorted list. If a member's share raises an exception, its text stands in place of all shares.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

public class AllocateQueues {
    public static void main(String[] arguments) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(arguments[0])), StandardCharsets.UTF_8);
        JSONArray results = new JSONArray();
        for (Object one : JSON.parseArray(text)) {
            results.add(allocate((JSONObject) one));
        }
        Files.write(Paths.get(arguments[1]), results.toJSONString().getBytes(StandardCharsets.UTF_8));
    }

    static JSONObject allocate(JSONObject given) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object one : given.getJSONArray("queues")) {
            JSONArray queue = (JSONArray) one;
            queues.add(new MessageQueue(queue.getString(0), queue.getString(1), queue.getIntValue(2)));
        }
        List<String> ids = given.getJSONArray("ids").toJavaList(String.class);
        List<MessageQueue> sortedQueues = new ArrayList<>(queues);
        List<String> sortedIds = new ArrayList<>(ids);
        Collections.sort(sortedQueues);
        Collections.sort(sortedIds);

        JSONObject result = new JSONObject(true);
        JSONArray queueOrder = new JSONArray();
        sortedQueues.forEach(queue -> queueOrder.add(queues.indexOf(queue)));
        JSONArray idOrder = new JSONArray();
        sortedIds.forEach(id -> idOrder.add(ids.indexOf(id)));
        result.put("queues", queueOrder);
        result.put("ids", idOrder);
        List<String> clients = new ArrayList<>(sortedIds);
        clients.add(given.getString("stranger"));
        for (AllocateMessageQueueStrategy strategy : strategies(given, sortedQueues)) {
            result.put(strategy.getName(), shares(strategy, clients, sortedQueues, sortedIds));
        }
        return result;
    }

    static Object shares(
        AllocateMessageQueueStrategy strategy, List<String> clients, List<MessageQueue> queues, List<String> ids) {
        try {
            JSONArray shares = new JSONArray();
            for (String client : clients) {
                JSONArray places = new JSONArray();
                strategy.allocate("group", client, queues, ids).forEach(queue -> places.add(queues.indexOf(queue)));
                shares.add(places);
            }
            return shares;
        } catch (RuntimeException error) {
            return error.toString();
        }
    }

    static List<AllocateMessageQueueStrategy> strategies(JSONObject given, List<MessageQueue> queues) {
        AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
        byRoom.setConsumeridcs(new HashSet<>(given.getJSONArray("rooms").toJavaList(String.class)));
        AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
        List<MessageQueue> configured = new ArrayList<>();
        given.getJSONArray("configured").forEach(place -> configured.add(queues.get((Integer) place)));
        byConfig.setMessageQueueList(configured);
        AllocateMessageQueueConsistentHash ring =
            new AllocateMessageQueueConsistentHash(given.getIntValue("virtualNodes"));
        List<AllocateMessageQueueStrategy> all = new ArrayList<>();
        all.add(new AllocateMessageQueueAveragely());
        all.add(new AllocateMessageQueueAveragelyByCircle());
        all.add(ring);
        all.add(byRoom);
        all.add(byConfig);
        all.add(new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new BeforeAt()));
        all.add(new AllocateMachineRoomNearby(ring, new BeforeAt()));
        return all;
    }

    /** The room is what stands before the first "@"; nothing stands there without one. */
    static class BeforeAt implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return room(clientId);
        }

        static String room(String name) {
            return name.substring(0, Math.max(0, name.indexOf('@')));
        }
    }
}
