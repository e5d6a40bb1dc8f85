#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-broker 5.5.0 (Maven Central), with the fastjson2 2.0.59 that it brings.
# Behaviour: 5.5.0's answer to GET_ALL_CONSUMER_OFFSET (43) has a new member, pullOffsetTable, with bare integer names,
#   {0:1}. The class by which 5.5.0 reads the answer does not know the member, and its JSON reader refuses such names in
#   a member that it skips, though it takes them in those that it knows: "not support unquoted name". 5.4.0 has neither.
# The guess one would make: what a release writes for its slaves, the same release reads; unknown members do no harm.
# Where it matters: as soon as one consumer has pulled, a 5.5.0 slave gets none of its 5.5.0 master's offsets, and with
#   enableSlaveActingMaster=true a 5.5.0 master that comes back beside an acting 5.5.0 slave asks it again each second
#   and never registers, at a NameServer of any release.
# Output seen:
#   5.4.0 {...,"offsetTable":{"orders@billing":{0:1}}} read: {orders@billing={0=1}}
#   5.5.0 {...,"offsetTable":{"orders@billing":{0:1}},"pullOffsetTable":{"orders@billing":{0:2}}} refused: JSONException...
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir -p program
cat > program/Offsets.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;

public class Offsets {
    public static void main(String[] arguments) {
        ConsumerOffsetManager broker = new ConsumerOffsetManager();
        broker.getOffsetTable().computeIfAbsent("orders@billing", name -> new ConcurrentHashMap<>()).put(0, 1L);
        broker.commitPullOffset("127.0.0.1", "billing", "orders", 0, 2);
        String text = broker.encode();
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        String outcome;
        try {
            outcome = "read: "
                + ConsumerOffsetSerializeWrapper.decode(bytes, ConsumerOffsetSerializeWrapper.class).getOffsetTable();
        } catch (RuntimeException error) {
            String words = error.getMessage().split("\n")[0];
            outcome = "refused: " + error.getClass().getSimpleName() + ": "
                + words.substring(0, Math.min(60, words.length()));
        }
        System.out.println(arguments[0] + " " + text + " " + outcome);
    }
}
JAVA

outcome() {
    mkdir -p "$1"
    cat > "$1/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId>
<version>$1</version></dependency></dependencies></project>
POM
    mvn -q -B -f "$1/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/$1/lib" >&2 ||
        return 2
    java -Duser.home="$work" -cp "$work/$1/lib/*" program/Offsets.java "$1" > "$1/output" 2>&1 || return 2
    grep "^$1 " "$1/output" || return 2
}

before=$(outcome 5.4.0) || exit 2
now=$(outcome 5.5.0) || exit 2
printf '%s\n' "$before" "$now"
case $before in *pullOffsetTable*) exit 1 ;; *'read: {orders@billing={0=1}}'*) ;; *) exit 1 ;; esac
case $now in *'"pullOffsetTable":{"orders@billing":{0:2}}'*'refused: '*'unquoted name'*) exit 0 ;; *) exit 1 ;; esac
