// Runs programs one after another in one Java machine, so that each costs no start: the other side of java_machine.py.
//
// Reads from standard input, for each: the number of texts, then each text as its length and its UTF-8. The texts are
// the file for the program's output, a source file or "", the class with the main, and the arguments. Writes one byte to
// standard output when the program has ended: 0, or 1 if it threw. Ends with its input.

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import javax.tools.ToolProvider;

public class RunPrograms {
    static final Map<String, Path> COMPILED = new HashMap<>();

    public static void main(String[] none) throws Exception {
        DataInputStream programs = new DataInputStream(System.in);
        OutputStream results = new FileOutputStream(FileDescriptor.out);
        PrintStream log = System.err;
        System.setOut(log);
        while (true) {
            String[] texts;
            try {
                texts = new String[programs.readInt()];
            } catch (EOFException ended) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < texts.length; i++) {
                texts[i] = new String(programs.readNBytes(programs.readInt()), StandardCharsets.UTF_8);
            }
            Properties before = (Properties) System.getProperties().clone();
            int failed = 0;
            try (PrintStream output = new PrintStream(new FileOutputStream(texts[0]), true, StandardCharsets.UTF_8)) {
                System.setOut(output);
                System.setErr(output);
                try {
                    run(texts[1], texts[2], Arrays.copyOfRange(texts, 3, texts.length));
                } catch (InvocationTargetException thrown) {
                    thrown.getCause().printStackTrace();
                    failed = 1;
                } catch (Exception error) {
                    error.printStackTrace();
                    failed = 1;
                }
            } finally {
                System.setOut(log);
                System.setErr(log);
                System.setProperties(before);
            }
            results.write(failed);
        }
    }

    static void run(String source, String main, String[] arguments) throws Exception {
        ClassLoader loader = source.isEmpty() ? new ToolsLoader()
                : new URLClassLoader(new URL[] {compiled(Path.of(source)).toUri().toURL()}, ClassLoader.getSystemClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        loader.loadClass(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
    }

    // Loads the classes of mqadmin anew for each run: some of its commands keep the client of their first run.
    static class ToolsLoader extends URLClassLoader {
        ToolsLoader() throws Exception {
            super(classPath(), ClassLoader.getSystemClassLoader());
        }

        static URL[] classPath() throws Exception {
            String[] paths = System.getProperty("java.class.path").split(File.pathSeparator);
            URL[] urls = new URL[paths.length];
            for (int i = 0; i < paths.length; i++) {
                urls[i] = Path.of(paths[i]).toUri().toURL();
            }
            return urls;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.rocketmq.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded != null ? loaded : findClass(name);
            }
        }
    }

    static Path compiled(Path source) throws Exception {
        String content = Files.readString(source);
        Path classes = COMPILED.get(content);
        if (classes == null) {
            classes = Files.createTempDirectory("classes");
            String path = System.getProperty("java.class.path");
            String[] options = {"-cp", path, "-d", classes.toString(), source.toString()};
            if (ToolProvider.getSystemJavaCompiler().run(null, System.out, System.err, options) != 0) {
                throw new IllegalArgumentException(source + " does not compile");
            }
            COMPILED.put(content, classes);
        }
        return classes;
    }
}
