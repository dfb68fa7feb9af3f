// Teaches OpenVINO's ONNX frontend the operators of custom.ops, version 1: AffineGrid, AffineGridSample, Rot90,
// CustomRotScale. Each becomes OpenVINO's own operators, as in rewriter/runtimes/openvino.py:
//
//     grid[n, h, (w, c)] = (theta[n, c, 0] * x_w + theta[n, c, 2]) + theta[n, c, 1] * y_h
//
// without a matrix product, which some CPUs would compute in bfloat16. Everything that follows from constants OpenVINO
// folds when it compiles the model. Volumes: AffineGrid only, since OpenVINO's GridSample takes images only.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <openvino/core/extension.hpp>
#include <openvino/frontend/node_context.hpp>
#include <openvino/frontend/onnx/extension/conversion.hpp>
#include <openvino/opsets/opset13.hpp>

namespace {

namespace op = ov::opset13;
using Values = ov::OutputVector;
using Value = ov::Output<ov::Node>;
using ov::frontend::NodeContext;

constexpr const char* DOMAIN_NAME = "custom.ops";

Value ints(const std::vector<int64_t>& values) {
    return op::Constant::create(ov::element::i64, {values.size()}, values);
}

Value integer(int64_t value) {
    return op::Constant::create(ov::element::i64, {}, {value});
}

Value gather(const Value& from, const Value& index, int64_t axis) {
    return std::make_shared<op::Gather>(from, index, integer(axis));
}

Value add(const Value& a, const Value& b) { return std::make_shared<op::Add>(a, b); }
Value multiply(const Value& a, const Value& b) { return std::make_shared<op::Multiply>(a, b); }
Value subtract(const Value& a, const Value& b) { return std::make_shared<op::Subtract>(a, b); }
Value concat(const Values& parts) { return std::make_shared<op::Concat>(parts, 0); }

Value reshape(const Value& value, const Value& shape, bool zero_copies) {
    return std::make_shared<op::Reshape>(value, shape, zero_copies);
}

Value convert(const Value& value, const ov::element::Type& type) {
    if (value.get_element_type() == type)
        return value;
    return std::make_shared<op::Convert>(value, type);
}

// theta in the type that coordinates are computed in: float32, float64 for float64.
Value widened(const Value& theta) {
    return convert(theta, theta.get_element_type() == ov::element::f64 ? ov::element::f64 : ov::element::f32);
}

// (2i + 1 - n) / max(n - align_corners, 1) for the axis whose length `size` holds at `place`, along axis place - 1 of
// the grid [N, (D,) H, W*d]; those of the last axis d times each.
Value axis(const Value& size, int64_t place, int64_t corners, const ov::element::Type& real, int64_t d) {
    const Value n = gather(size, integer(place), 0);
    const Value odd = std::make_shared<op::Range>(subtract(integer(1), n), n, integer(2), ov::element::i64);
    Value span = convert(corners ? subtract(n, integer(1)) : n, real);
    if (corners)
        span = std::make_shared<op::Maximum>(span, op::Constant::create(real, {}, {1}));
    Value line = std::make_shared<op::Divide>(convert(odd, real), span);
    if (place == d + 1)
        line = std::make_shared<op::Tile>(reshape(line, ints({-1, 1}), false), ints({1, d}));
    std::vector<int64_t> shape(d + 1, 1);
    shape[place - 1] = -1;
    return reshape(line, ints(shape), false);
}

// The number of spatial axes: 2 or 3.
int64_t dims_of(const Value& theta, const Value& size) {
    const auto known = [](const Value& value, int64_t rank, int64_t index) -> int64_t {
        const auto& shape = value.get_partial_shape();
        return shape.rank().is_static() && shape.rank().get_length() == rank && shape[index].is_static()
                   ? shape[index].get_length() : -1;
    };
    if (const auto rows = known(theta, 3, 1); rows > 0)
        return rows;
    if (const auto length = known(size, 1, 0); length > 0)
        return length - 2;
    throw std::runtime_error("nothing in the model tells whether a grid is a plane or a volume");
}

Value grid_of(const Value& theta, const Value& size, int64_t corners, int64_t d) {
    const auto real = theta.get_element_type();
    const Value flat = reshape(theta, ints({0, d * (d + 1)}), true);
    const std::vector<int64_t> ones(d - 1, 1);
    const Value widths = concat({ints(ones), gather(size, ints({d + 1}), 0)});
    std::vector<int64_t> places;  // of the columns of theta
    for (int64_t k = 0; k <= d; ++k)
        for (int64_t c = 0; c < d; ++c)
            places.push_back(c * (d + 1) + k);
    ov::Shape shape(d, 1);
    shape.front() = d + 1;
    shape.back() = d;
    const Value index = op::Constant::create(ov::element::i64, shape, places);
    const auto rows = std::make_shared<op::Split>(gather(flat, std::make_shared<op::Tile>(index, widths), 1),
                                                  integer(1), d + 1);
    const auto row = [&](int64_t k) { return rows->output(k); };  // [N, 1, (1,) W*d]: column k of theta
    Value grid = add(multiply(row(0), axis(size, d + 1, corners, real, d)), row(d));
    const Value batch = gather(size, ints({0}), 0);  // broadcasts against theta's
    const Value target = concat({batch, ints(std::vector<int64_t>(d, 1))});
    grid = std::make_shared<op::Broadcast>(grid, target, ov::op::BroadcastType::BIDIRECTIONAL);
    for (int64_t k = 1; k < d; ++k)
        grid = add(grid, multiply(row(k), axis(size, d + 1 - k, corners, real, d)));
    const Value spatial = std::make_shared<op::Slice>(size, ints({2}), ints({d + 2}), ints({1}));
    return reshape(grid, concat({ints({0}), spatial, ints({d})}), true);
}

Values affine_grid(const NodeContext& node) {
    const Value theta = node.get_input(0), size = node.get_input(1);
    const auto corners = node.get_attribute<int64_t>("align_corners", 0);
    return {convert(grid_of(widened(theta), size, corners, dims_of(theta, size)), theta.get_element_type())};
}

Values affine_grid_sample(const NodeContext& node) {
    const Value x = node.get_input(0), theta = node.get_input(1), size = node.get_input(2);
    const auto rank = x.get_partial_shape().rank();
    if ((rank.is_static() ? rank.get_length() - 2 : dims_of(theta, size)) == 3)
        throw std::runtime_error("AffineGridSample: OpenVINO's GridSample takes images only, not volumes");
    using Sample = op::GridSample;
    static const std::map<std::string, Sample::InterpolationMode> modes = {
        {"linear", Sample::InterpolationMode::BILINEAR}, {"bilinear", Sample::InterpolationMode::BILINEAR},
        {"nearest", Sample::InterpolationMode::NEAREST}, {"cubic", Sample::InterpolationMode::BICUBIC},
        {"bicubic", Sample::InterpolationMode::BICUBIC}};
    static const std::map<std::string, Sample::PaddingMode> paddings = {
        {"zeros", Sample::PaddingMode::ZEROS}, {"border", Sample::PaddingMode::BORDER},
        {"reflection", Sample::PaddingMode::REFLECTION}};
    const Sample::Attributes attributes(node.get_attribute<int64_t>("align_corners", 0) != 0,
                                        modes.at(node.get_attribute<std::string>("mode", "linear")),
                                        paddings.at(node.get_attribute<std::string>("padding_mode", "zeros")));
    const auto corners = node.get_attribute<int64_t>("grid_align_corners", 0);
    return {std::make_shared<Sample>(x, grid_of(widened(theta), size, corners, 2), attributes)};
}

Value reversed(Value value, int64_t along) {
    const Value length = gather(std::make_shared<op::ShapeOf>(value), integer(along), 0);
    const Value last = subtract(length, integer(1));
    return gather(value, std::make_shared<op::Range>(last, integer(-1), integer(-1), ov::element::i64), along);
}

Value turned(const NodeContext& node, int64_t turns, int64_t first, int64_t second) {
    Value x = node.get_input(0);
    int64_t rank = 0;
    if (node.has_attribute("perm"))
        rank = static_cast<int64_t>(node.get_attribute<std::vector<int64_t>>("perm").size());
    else if (x.get_partial_shape().rank().is_static())
        rank = x.get_partial_shape().rank().get_length();
    else
        throw std::runtime_error("the rank of what a rotation turns is unknown");
    first = (first % rank + rank) % rank;
    second = (second % rank + rank) % rank;
    if (first > second) {
        std::swap(first, second);
        turns = -turns;
    }
    turns = (turns % 4 + 4) % 4;
    std::vector<int64_t> swap(rank);
    for (int64_t i = 0; i < rank; ++i)
        swap[i] = i == first ? second : i == second ? first : i;
    if (turns == 1)
        return reversed(std::make_shared<op::Transpose>(x, ints(swap)), first);
    if (turns == 2)
        return reversed(reversed(x, first), second);
    if (turns == 3)
        return std::make_shared<op::Transpose>(reversed(x, first), ints(swap));
    return reshape(x, std::make_shared<op::ShapeOf>(x), false);
}

Values rot90(const NodeContext& node) {
    const auto axes = node.get_attribute<std::vector<int64_t>>("axes", {0, 1});
    return {turned(node, node.get_attribute<int64_t>("k", 1), axes.at(0), axes.at(1))};
}

int64_t axis_named(std::string word) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    static const std::map<std::string, int64_t> names = {{"width", -1}, {"height", -2}, {"depth", -3}};
    const auto found = names.find(word);
    return found == names.end() ? std::stoll(word) : found->second;
}

// The nearest bfloat16, of two the even one.
float rounded_to_bfloat16(float value) {
    if (std::isnan(value))
        return value;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

Values rot_scale(const NodeContext& node) {
    std::istringstream dims(node.get_attribute<std::string>("dims", "height,width"));
    std::string first, second;
    std::getline(dims, first, ',');
    std::getline(dims, second, ',');
    const Value y = turned(node, node.get_attribute<int64_t>("rotations", 1), axis_named(first), axis_named(second));
    float factor = node.get_attribute<float>("scale_factor", 1.0f);
    if (y.get_element_type() == ov::element::bf16)  // OpenVINO cuts the lower bits off
        factor = rounded_to_bfloat16(factor);
    return {multiply(y, convert(op::Constant::create(ov::element::f32, {}, {factor}), y.get_element_type()))};
}

using Conversion = ov::frontend::onnx::ConversionExtension;

}  // namespace

OPENVINO_CREATE_EXTENSIONS(std::vector<ov::Extension::Ptr>({
    std::make_shared<Conversion>("AffineGrid", DOMAIN_NAME, affine_grid),
    std::make_shared<Conversion>("AffineGridSample", DOMAIN_NAME, affine_grid_sample),
    std::make_shared<Conversion>("Rot90", DOMAIN_NAME, rot90),
    std::make_shared<Conversion>("CustomRotScale", DOMAIN_NAME, rot_scale),
}));
