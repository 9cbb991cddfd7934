"""Parts of the interop tests: the Java build, the Java client process, server processes of both kinds."""
