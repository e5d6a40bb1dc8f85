import java.util.Arrays;

/** Runs the main of the class that is named first, and ends: Netty's threads would stay for two quiet seconds more. */
public class RunAndExit {
    public static void main(String[] arguments) throws Exception {
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        System.out.flush();
        System.err.flush();
        Runtime.getRuntime().halt(0);
    }
}
