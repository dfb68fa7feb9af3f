#include "turn/avx2/lines.h"
#include "turn/avx2/pixels.h"
#include "turn/avx2/transpose.h"
#include "turn/kernels.h"

namespace warpfuse {
namespace {

template <int Bytes>
constexpr Kernels moving = {transpose<Move<Bytes>>, reverse<Move<Bytes>>, nullptr};
template <int Bytes>
constexpr Kernels moving_pixels = {transpose_pixels<Bytes>, reverse_pixels<Bytes>, nullptr};
template <class Effect>
constexpr Kernels multiplying = {transpose<Effect>, reverse<Effect>, multiply<Effect>};

} // namespace

Kernels avx2_kernels(Element element) {
    switch (element) {
    case Element::Bytes1: return moving<1>;
    case Element::Bytes2: return moving<2>;
    case Element::Bytes3: return moving_pixels<3>;
    case Element::Bytes4: return moving<4>;
    case Element::Bytes6: return moving_pixels<6>;
    case Element::Bytes8: return moving<8>;
    case Element::Bytes12: return moving_pixels<12>;
    case Element::Bytes16: return moving<16>;
    case Element::Float16: return multiplying<MultiplyFloat16>;
    case Element::BFloat16: return multiplying<MultiplyBFloat16>;
    case Element::Float32: return multiplying<MultiplyFloat32>;
    case Element::Float64: break;
    }
    return multiplying<MultiplyFloat64>;
}

} // namespace warpfuse
