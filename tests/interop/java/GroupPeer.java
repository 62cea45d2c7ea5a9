import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.nio.charset.StandardCharsets;

/**
 * A reader of a group, with Pravega's own client: endpoint, scope, group, stream, mode create | read.
 * It prints "event TEXT", "checkpoint NAME" and "failed EXCEPTION"; at the end of its standard input it leaves the group.
 */
final class GroupPeer {
    public static void main(String[] given) throws Exception {
        String ca = System.getenv("pravega_client_tls_cert_path");
        ClientConfig config = ClientConfig.builder().trustStore(ca)
                .controllerURI(URI.create((ca == null ? "tcp://" : "tls://") + given[0])).build();
        String scope = given[1];
        String group = given[2];
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            if (given[4].equals("create")) {
                manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, given[3]))
                        .automaticCheckpointIntervalMillis(1000).groupRefreshTimeMillis(200).build());
                say("created");
            } else {
                read(config, scope, group);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void read(ClientConfig config, String scope, String group) throws Exception {
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
                EventStreamReader<String> reader = factory.createReader("java", group, new UTF8StringSerializer(),
                        ReaderConfig.builder().build())) {
            say("joined");
            while (System.in.available() == 0) {
                EventRead<String> event;
                try {
                    event = reader.readNextEvent(200);
                } catch (RuntimeException failure) {
                    say("failed " + failure);
                    Thread.sleep(200);
                    continue;
                }
                if (event.isCheckpoint()) {
                    say("checkpoint " + event.getCheckpointName());
                } else if (event.getEvent() != null) {
                    say("event " + event.getEvent());
                }
            }
        }
        say("left");
    }

    private static void say(String line) {
        System.out.write((line + "\n").getBytes(StandardCharsets.UTF_8), 0, line.length() + 1);
        System.out.flush();
    }
}
