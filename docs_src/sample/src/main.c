#include <stdio.h>

int main(void) {
    FILE *config = fopen("service.toml", "r");
    if (config == NULL) {
        fprintf(stderr, "error: cannot open service.toml\n");
        return 1;
    }
    fclose(config);
    return 0;
}
