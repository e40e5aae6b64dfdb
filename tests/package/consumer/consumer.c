/* A stranger's program: finds the installed library and asks it for its version. */
#include <amldist/amldist.h>
#include <stdio.h>

int main(void) {
  puts(amldist_version());
  return amldist_check_option("pytorch") == AMLDIST_OK ? 0 : 1;
}
