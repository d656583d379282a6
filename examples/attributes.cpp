// A class changes and still loads its old files: attributes list the differences.
#include <cstdio>
#include <vector>

#include <stele/stele.hpp>

struct OldNorm {  // the class at the time of the save
  std::vector<float> w;
  std::vector<float> beta;
};

struct Norm {
  std::vector<float> weight;
  std::vector<float> bias;
  std::vector<float> gain{1, 1};
  std::vector<int> strides{2, 2};  // integers in a plain struct must be listed or skipped
};
template <>
struct stele::attributes<Norm> {
  static constexpr stele::Attribute list[] = {
      stele::attr::alias("weight", "w"),    // its name in older files
      stele::attr::rename("bias", "beta"),  // its name in all files
      stele::attr::keep_default("gain"),    // may be missing from the file
      stele::attr::skip("strides"),         // not recorded
  };
};

int main() {
  stele::save(OldNorm{{3, 4}, {5, 6}}, "norm.stele").value();
  const Norm norm = stele::load<Norm>("norm.stele").value();
  std::printf("weight %g, bias %g, gain %g\n", double{norm.weight[0]}, double{norm.bias[0]}, double{norm.gain[0]});
  std::printf("%s", stele::summary(norm).c_str());
}

// Output:
// weight 3, bias 5, gain 1
// weight  f32 [2]  2
// beta  f32 [2]  2
// gain  f32 [2]  2
// 3 tensors, 6 parameters, 24 bytes
