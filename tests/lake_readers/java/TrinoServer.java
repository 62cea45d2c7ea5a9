/** Trino, as its own main class starts it. */
public class TrinoServer {
    public static void main(String[] args) {
        new io.trino.server.Server().start("476");
    }
}
