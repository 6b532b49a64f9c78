# Settings come as they do for Apache's image: KAFKA_NODE_ID=1 is node.id=1.
set -eu
env | sed -n 's/^KAFKA_\([A-Z_]*=.*\)/\1/p' | while IFS='=' read -r name value; do
    printf '%s=%s\n' "$(printf %s "$name" | tr 'A-Z_' 'a-z.')" "$value"
done > server.properties
cat > log4j2.properties <<'END'
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
END
run() {
    exec java -Xmx512m -XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
        -Dlog4j2.configurationFile=log4j2.properties -cp '/opt/kafka/libs/*' "$@"
}
(run kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" --config server.properties)
run kafka.Kafka server.properties
