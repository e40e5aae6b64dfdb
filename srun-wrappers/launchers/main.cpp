// The main() of one launcher, compiled once for each: AMLDIST_LAUNCHER is its namespace.
namespace amldist::launchers::AMLDIST_LAUNCHER {
int run(int argc, char** argv);
}

int main(int argc, char** argv) { return amldist::launchers::AMLDIST_LAUNCHER::run(argc, argv); }
