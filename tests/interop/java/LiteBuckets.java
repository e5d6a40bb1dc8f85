// The queues that a broker's LiteShardingImpl gives to 10,000 names of lite topics, and Guava's buckets of the arguments.
//
// Each line has the number of queues, and the number of each name's queue.

import com.google.common.hash.Hashing;
import java.util.*;
import org.apache.rocketmq.broker.lite.LiteShardingImpl;
import org.apache.rocketmq.broker.topic.TopicRouteInfoManager;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.lite.LiteUtil;
public class LiteBuckets {
    public static void main(String[] args) throws Exception {
        int[] counts = {1, 2, 3, 4, 7, 8, 16, 100, 1000};
        for (int n : counts) {
            TopicPublishInfo info = new TopicPublishInfo();
            List<MessageQueue> queues = new ArrayList<>();
            for (int q = 0; q < n; q++) queues.add(new MessageQueue("T", Integer.toString(q), 0));
            info.setMessageQueueList(queues);
            TopicRouteInfoManager routes = new TopicRouteInfoManager(null) {
                public TopicPublishInfo tryToFindTopicPublishInfo(String topic) { return info; }
            };
            LiteShardingImpl sharding = new LiteShardingImpl(null, routes);
            StringBuilder line = new StringBuilder();
            for (int i = 0; i < 10000; i++) {
                String name = i % 2 == 0 ? "session-" + i : Integer.toHexString(i * 0x9E3779B1) + "_" + i * 7919L;
                line.append(i == 0 ? "" : " ").append(sharding.shardingByLmqName("T", LiteUtil.toLmqName("T", name)));
            }
            System.out.println(n + " " + line);
        }
        for (String arg : args) System.out.println("code " + arg + " " + Hashing.consistentHash(Long.parseLong(arg), 1000));
    }
}
