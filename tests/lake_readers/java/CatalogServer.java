import java.net.InetSocketAddress;
import java.util.HashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's REST catalog on the loopback interface: PORT, and the properties of the catalog behind it as NAME=VALUE. */
public class CatalogServer {
    public static void main(String[] args) throws Exception {
        var properties = new HashMap<String, String>();
        for (int at = 1; at < args.length; at++) {
            String[] parts = args[at].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        var catalog = CatalogUtil.buildIcebergCatalog("lake", properties, new Configuration());
        var context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
