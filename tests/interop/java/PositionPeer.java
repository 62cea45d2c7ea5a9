import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * A group with one reader, with Pravega's own client: endpoint, scope, group, stream, cut | head, count, quiet ms.
 * It begins at the cut, reads so many events, or until none comes for so long, and prints "event TEXT", then
 * "cut TEXT" with where it is; or "failed EXCEPTION".
 */
final class PositionPeer {
    public static void main(String[] given) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create("tcp://" + given[0])).build();
        String scope = given[1];
        String group = given[2];
        Stream stream = Stream.of(scope, given[3]);
        int count = Integer.parseInt(given[5]);
        long quiet = Long.parseLong(given[6]);
        ReaderGroupConfig.ReaderGroupConfigBuilder asked = ReaderGroupConfig.builder().automaticCheckpointIntervalMillis(1000)
                .groupRefreshTimeMillis(200);
        if (given[4].equals("head")) {
            asked.stream(stream);
        } else {
            asked.stream(stream, StreamCut.from(given[4]));
        }
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            manager.createReaderGroup(group, asked.build());
            read(config, scope, group, count, quiet);
            try (ReaderGroup found = manager.getReaderGroup(group)) {
                Map<Stream, StreamCut> cuts = found.getStreamCuts();
                say("cut " + cuts.get(stream).asText());
            }
        } catch (Throwable failure) {
            StringBuilder text = new StringBuilder("failed ").append(failure);
            for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
                text.append(" <- ").append(cause);
            }
            say(text.toString().replace('\n', ' '));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void read(ClientConfig config, String scope, String group, int count, long quiet) {
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
                EventStreamReader<String> reader = factory.createReader("java", group, new UTF8StringSerializer(),
                        ReaderConfig.builder().build())) {
            long last = System.nanoTime();
            int seen = 0;
            while (seen < count && System.nanoTime() - last < quiet * 1_000_000) {
                EventRead<String> event = reader.readNextEvent(200);
                if (event.getEvent() != null) {
                    say("event " + event.getEvent());
                    last = System.nanoTime();
                    seen++;
                }
            }
        }
    }

    private static void say(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }
}
