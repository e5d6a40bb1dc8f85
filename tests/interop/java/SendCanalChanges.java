// Canal's server in one process with its producer for RocketMQ, over one database of MySQL or MariaDB.
//
// It does what Canal's launcher does with a destination whose `canal.mq.flatMessage` is true; the launcher itself is not
// published. A table lies in one queue.
//
// Arguments: NameServer, folder for what Canal notes, the database's port, its name, topic, number of the topic's
// queues, and the file and the position of the log from which it reads where it noted none.

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.alibaba.otter.canal.connector.rocketmq.producer.CanalRocketMQProducer;
import com.alibaba.otter.canal.instance.core.CanalMQConfig;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.server.CanalMQStarter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.slf4j.LoggerFactory;

public class SendCanalChanges {
    static final String DESTINATION = "judge";

    public static void main(String[] arguments) throws Exception {
        ((Logger) LoggerFactory.getLogger("ROOT")).setLevel(Level.WARN);
        String database = arguments[3];

        CanalMQConfig queues = new CanalMQConfig();
        queues.setTopic(arguments[4]);
        queues.setPartitionsNum(Integer.valueOf(arguments[5]));
        queues.setPartitionHash(database + "\\..*");

        CanalParameter parameter = new CanalParameter();
        parameter.setSourcingType(CanalParameter.SourcingType.MYSQL);
        parameter.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        parameter.setMetaMode(CanalParameter.MetaMode.LOCAL_FILE);
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        parameter.setStorageMode(CanalParameter.StorageMode.MEMORY);
        parameter.setDataDir(arguments[1]);
        parameter.setMasterAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[2])));
        parameter.setMasterUsername("root");
        parameter.setMasterPassword("");
        parameter.setMasterLogfileName(arguments[6]);
        parameter.setMasterLogfileOffest(Long.valueOf(arguments[7]));
        parameter.setDefaultDatabaseName(database);
        parameter.setConnectionCharset("UTF-8");
        parameter.setSlaveId(ProcessHandle.current().pid());
        parameter.setDetectingEnable(false);
        parameter.setGtidEnable(false);
        parameter.setParallel(false);

        Canal description = new Canal();
        description.setId(1L);
        description.setName(DESTINATION);
        description.setCanalParameter(parameter);

        Properties settings = new Properties();
        settings.setProperty("canal.mq.flatMessage", "true");
        settings.setProperty("rocketmq.namesrv.addr", arguments[0]);
        settings.setProperty("rocketmq.producer.group", "canal");
        CanalRocketMQProducer producer = new CanalRocketMQProducer();
        producer.init(settings);

        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(destination -> new CanalInstanceWithManager(description, database + "\\..*") {
            {
                mqConfig = queues;
            }
        });
        server.start();
        server.start(DESTINATION);
        new CanalMQStarter(producer).start(DESTINATION);
        System.out.println("started");
        Thread.currentThread().join();
    }
}
