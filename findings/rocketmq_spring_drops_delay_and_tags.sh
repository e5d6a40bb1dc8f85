#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-spring-boot-starter 2.3.4 (Maven Central), the conversion that its template uses.
# Behaviour: of the names in its class RocketMQHeaders, KEYS and FLAG work as headers of a message to send. DELAY and TAGS
#   do nothing and are dropped: no delay level, no tag, not even a property. A blank header of one's own fails the send.
# The guess one would make: all of RocketMQHeaders can be set with setHeader, as in Spring's other starters (and as DELAY
#   can in the RocketMQ binder of Spring Cloud Stream); a name that is not known would at least become a property.
# Where it matters: a message with setHeader(RocketMQHeaders.DELAY, 16) is delivered at once, and one with TAGS reaches no
#   consumer that subscribes to the tag, without an error or a log line.
# Output seen: keys a-1, flag 9, delay level 0, tag null; properties of the user: [id, source, timestamp]
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir -p spring
cat > spring/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-spring-boot-starter</artifactId><version>2.3.4</version></dependency>
</dependencies></project>
POM
mvn -q -B -f spring/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/spring/lib" >&2 || exit 2
cat > Headers.java <<'JAVA'
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.apache.rocketmq.spring.support.RocketMQMessageConverter;
import org.apache.rocketmq.spring.support.RocketMQUtil;
import org.springframework.messaging.support.MessageBuilder;

public class Headers {
    public static void main(String[] arguments) {
        var message = MessageBuilder.withPayload("body")
            .setHeader(RocketMQHeaders.KEYS, "a-1").setHeader(RocketMQHeaders.FLAG, 9)
            .setHeader(RocketMQHeaders.DELAY, 16).setHeader(RocketMQHeaders.TAGS, "paid")
            .setHeader("source", "shop").build();
        var sent = RocketMQUtil.convertToRocketMessage(
            new RocketMQMessageConverter().getMessageConverter(), "UTF-8", "orders", message);
        var names = new TreeSet<>(sent.getProperties().keySet());
        names.removeAll(MessageConst.STRING_HASH_SET);
        System.out.println("keys " + sent.getKeys() + ", flag " + sent.getFlag() + ", delay level "
            + sent.getDelayTimeLevel() + ", tag " + sent.getTags() + "; properties of the user: " + names);
    }
}
JAVA

java "-Duser.home=$work" -cp 'spring/lib/*' Headers.java > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^keys ' output
grep -qxF 'keys a-1, flag 9, delay level 0, tag null; properties of the user: [id, source, timestamp]' output || exit 1
