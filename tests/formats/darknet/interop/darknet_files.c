/* Loads weights that count 0, 1/8, 2/8, … into a network, saves them, and prints the place of each array of the network
 * in the file: layer, array, its first value times 8, its size. Links with pjreddie/darknet, or with -DALEXEY with
 * AlexeyAB/darknet.
 *
 *   darknet_files NETWORK.cfg WEIGHTS    writes WEIGHTS and prints the arrays
 */
#include <darknet.h>

#include <stdio.h>
#include <stdlib.h>

#ifdef ALEXEY
network parse_network_cfg(char *filename);
#define LAYERS(net) (net).layers
#define COUNT(net) (net).n
typedef network net_t;
#else
#define LAYERS(net) (net)->layers
#define COUNT(net) (net)->n
typedef network *net_t;
void save_weights(network *net, char *filename);
#endif

static void print(int index, const char *layer, const char *part, const float *values, int count) {
  printf("%d%s%s %.0f %d\n", index, layer, part, values[0] * 8, count);
}

static void statistics(int index, const char *name, layer l, int n) {
  char text[64];
  if (!l.batch_normalize && l.type != BATCHNORM) return;
  sprintf(text, "%sscales", name), print(index, ".", text, l.scales, n);
  sprintf(text, "%srolling_mean", name), print(index, ".", text, l.rolling_mean, n);
  sprintf(text, "%srolling_variance", name), print(index, ".", text, l.rolling_variance, n);
}

static void convolution(int index, const char *name, layer l) {
  char text[64];
  sprintf(text, "%sbiases", name), print(index, ".", text, l.biases, l.n);
  statistics(index, name, l, l.n);
  sprintf(text, "%sweights", name), print(index, ".", text, l.weights, l.nweights);
}

static void connected(int index, const char *name, layer l) {
  char text[64];
  sprintf(text, "%sbiases", name), print(index, ".", text, l.biases, l.outputs);
  sprintf(text, "%sweights", name), print(index, ".", text, l.weights, l.outputs * l.inputs);
  statistics(index, name, l, l.outputs);
}

int main(int count, char **arguments) {
  if (count != 3) return 1;
  net_t net = parse_network_cfg(arguments[1]);
  /* Twice: the size of the file is known after the first time. */
  save_weights(net, arguments[2]);
  FILE *file = fopen(arguments[2], "r+b");
  fseek(file, 0, SEEK_END);
  const long numbers = (ftell(file) - 20) / 4;
  fseek(file, 20, SEEK_SET);
  for (long i = 0; i < numbers; ++i) {
    const float value = (float)i / 8;
    fwrite(&value, sizeof value, 1, file);
  }
  fclose(file);
  /* The reader divides by the groups of a deconvolution, which are never set. */
  for (int i = 0; i < COUNT(net); ++i) {
    if (LAYERS(net)[i].groups == 0) LAYERS(net)[i].groups = 1;
  }
  load_weights(
#ifdef ALEXEY
      &net,
#else
      net,
#endif
      arguments[2]);
  save_weights(net, arguments[2]);
  for (int i = 0; i < COUNT(net); ++i) {
    layer l = LAYERS(net)[i];
    switch (l.type) {
      case CONVOLUTIONAL:
#ifdef ALEXEY
        if (l.share_layer != NULL) break;
#else
      case DECONVOLUTIONAL:
#endif
        convolution(i, "", l);
        break;
      case CONNECTED:
        connected(i, "", l);
        break;
      case BATCHNORM:
#ifdef ALEXEY
        print(i, ".", "biases", l.biases, l.c);
#endif
        statistics(i, "", l, l.c);
        break;
      case LOCAL:
        print(i, ".", "biases", l.biases, l.outputs);
        print(i, ".", "weights", l.weights, l.size * l.size * l.c * l.n * l.out_w * l.out_h);
        break;
      case RNN:
        connected(i, "input.", *l.input_layer);
        connected(i, "self.", *l.self_layer);
        connected(i, "output.", *l.output_layer);
        break;
      case LSTM:
        connected(i, "wf.", *l.wf), connected(i, "wi.", *l.wi), connected(i, "wg.", *l.wg);
        connected(i, "wo.", *l.wo), connected(i, "uf.", *l.uf), connected(i, "ui.", *l.ui);
        connected(i, "ug.", *l.ug), connected(i, "uo.", *l.uo);
        break;
      case GRU:
#ifdef ALEXEY
        connected(i, "uz.", *l.input_z_layer), connected(i, "ur.", *l.input_r_layer);
        connected(i, "uh.", *l.input_h_layer), connected(i, "wz.", *l.state_z_layer);
        connected(i, "wr.", *l.state_r_layer), connected(i, "wh.", *l.state_h_layer);
#else
        connected(i, "uz.", *l.uz), connected(i, "ur.", *l.ur), connected(i, "uh.", *l.uh);
        connected(i, "wz.", *l.wz), connected(i, "wr.", *l.wr), connected(i, "wh.", *l.wh);
#endif
        break;
      case CRNN:
        convolution(i, "input.", *l.input_layer);
        convolution(i, "self.", *l.self_layer);
        convolution(i, "output.", *l.output_layer);
        break;
#ifdef ALEXEY
      case SHORTCUT:
        if (l.nweights > 0) print(i, ".", "weights", l.weights, l.nweights);
        break;
      case IMPLICIT:
        print(i, ".", "weights", l.weights, l.nweights);
        break;
#endif
      default:
        break;
    }
  }
  return 0;
}
