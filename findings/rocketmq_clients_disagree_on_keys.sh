#!/usr/bin/env bash
# Package: four clients of Apache RocketMQ: org.apache.rocketmq:rocketmq-client 5.4.0 and rocketmq-client-java 5.0.8 (Maven
#   Central), github.com/apache/rocketmq-client-go/v2 v2.1.3-0.20251226070945-2173d070fd1b, rocketmq-python-client 5.1.2 (PyPI).
# Behaviour: each has a hash of its own for "the queue of this key": String.hashCode, SipHash, FNV-1a and SHA-256. Of
#   order-1 to order-4 on 4 queues, no key goes to one queue with all four, and two go to four different ones.
# The guess one would make: the clients of one project agree on the queue of a sharding key or message group, at least
#   those two that speak the same protocol of 5.x and call it a FIFO message.
# Where it matters: a service in Java and one in Go or Python that both write changes of the same orders, ordered by key.
#   Each order is in two queues, so consumers see its changes in any order, though both senders did as documented.
# Output seen:
#   remoting Java 2 1 0 3
#   gRPC Java 3 2 1 0
#   remoting Go 1 0 3 2
#   gRPC Python 3 3 3 1
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

keys=(order-1 order-2 order-3 order-4)
go=$(command -v go || echo /usr/local/go/bin/go)
[ -x "$go" ] || { echo "no go on the path" >&2; exit 2; }
mkdir -p remoting
cat > remoting/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>5.4.0</version></dependency>
</dependencies></project>
POM
mvn -q -B -f remoting/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/remoting/lib" >&2 || exit 2
mkdir -p grpc
cat > grpc/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client-java</artifactId><version>5.0.8</version></dependency>
</dependencies></project>
POM
mvn -q -B -f grpc/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/grpc/lib" >&2 || exit 2

cat > Hashed.java <<'JAVA'
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

public class Hashed {
    public static void main(String[] keys) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            queues.add(new MessageQueue("orders", "a", number));
        }
        StringBuilder line = new StringBuilder("remoting Java");
        for (String key : keys) {
            line.append(' ').append(new SelectMessageQueueByHash().select(queues, null, key).getQueueId());
        }
        System.out.println(line);
    }
}
JAVA
cat > Grouped.java <<'JAVA'
import apache.rocketmq.v2.Address;
import apache.rocketmq.v2.AddressScheme;
import apache.rocketmq.v2.Broker;
import apache.rocketmq.v2.Endpoints;
import apache.rocketmq.v2.MessageQueue;
import apache.rocketmq.v2.Permission;
import apache.rocketmq.v2.Resource;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.java.impl.producer.PublishingLoadBalancer;
import org.apache.rocketmq.client.java.route.TopicRouteData;

public class Grouped {
    public static void main(String[] keys) {
        var address = Address.newBuilder().setHost("127.0.0.1").setPort(8081);
        var endpoints = Endpoints.newBuilder().setScheme(AddressScheme.IPv4).addAddresses(address);
        List<MessageQueue> queues = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            queues.add(MessageQueue.newBuilder().setTopic(Resource.newBuilder().setName("orders")).setId(number)
                .setBroker(Broker.newBuilder().setName("a").setEndpoints(endpoints))
                .setPermission(Permission.READ_WRITE).build());
        }
        var balancer = new PublishingLoadBalancer(new TopicRouteData(queues));
        StringBuilder line = new StringBuilder("gRPC Java");
        for (String key : keys) {
            line.append(' ').append(balancer.takeMessageQueueByMessageGroup(key).getQueueId());
        }
        System.out.println(line);
    }
}
JAVA
mkdir program
cat > program/main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	var queues []*primitive.MessageQueue
	for number := 0; number < 4; number++ {
		queues = append(queues, &primitive.MessageQueue{Topic: "orders", BrokerName: "a", QueueId: number})
	}
	line := "remoting Go"
	for _, key := range os.Args[1:] {
		message := primitive.NewMessage("orders", []byte("body"))
		message.WithShardingKey(key)
		line += fmt.Sprint(" ", producer.NewHashQueueSelector().Select(message, queues, "").QueueId)
	}
	fmt.Println(line)
}
GO
cat > grouped.py <<'PYTHON'
import sys

from rocketmq.v5.client.balancer.queue_selector import QueueSelector

selector = QueueSelector(list(range(4)))
print("gRPC Python", *(selector.select_queue_by_hash_key(key) for key in sys.argv[1:]))
PYTHON
export HOME=$work GOPATH=$work/go GOCACHE=$work/go-build GOFLAGS='-mod=mod -modcacherw' GOTOOLCHAIN=local
(cd program && "$go" mod init program && "$go" get github.com/apache/rocketmq-client-go/v2@v2.1.3-0.20251226070945-2173d070fd1b && "$go" build -o program .) \
    > go.log 2>&1 || { tail -n 3 go.log >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check rocketmq-python-client==5.1.2 || exit 2
{
    java "-Duser.home=$work" -cp 'remoting/lib/*' Hashed.java "${keys[@]}"
    java "-Duser.home=$work" -cp 'grpc/lib/*' Grouped.java "${keys[@]}"
    program/program "${keys[@]}"
    venv/bin/python grouped.py "${keys[@]}"
} > output 2> errors || { tail -n 3 errors >&2; exit 2; }
grep -E '^(remoting|gRPC) ' output
printf '%s\n' 'remoting Java 2 1 0 3' 'gRPC Java 3 2 1 0' 'remoting Go 1 0 3 2' 'gRPC Python 3 3 3 1' > expected
grep -E '^(remoting|gRPC) ' output | cmp -s - expected || exit 1
