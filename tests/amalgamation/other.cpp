// Another source of main.cpp's program: both include stele.hpp, and use the same class.
#include "stele.hpp"

class Linear {
 public:
  explicit Linear(float x = 0) : weight(4, x) {}
  float first() const { return weight[0]; }

 private:
  std::vector<float> weight;
  STELE_MODULE(Linear, weight)
};

int other_source() {
  const stele::BytesRecorder<> recorder;
  const auto bytes = recorder.save(Linear(3));
  if (!bytes) return 3;
  const auto loaded = recorder.load<Linear>(bytes->span());
  return loaded && loaded->first() == 3 ? 0 : 4;
}
