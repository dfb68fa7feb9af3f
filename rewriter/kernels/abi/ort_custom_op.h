#pragma once

#include <cstddef>
#include <cstdint>

// What a library of custom operators needs of ONNX Runtime's C interface, declared here so that building needs none of
// its headers. The interface is one table of function pointers that only ever grows: a position once published holds
// for every later release. Calling conventions other than the platform's only one (32-bit Windows) are left out.
namespace warpfuse::ort {

constexpr std::uint32_t api_version = 17; // ONNX Runtime 1.17: the first with ParallelFor and shape inference

// Opaque to us; always behind pointers.
struct Status; // null is success
struct Value;
struct KernelInfo;
struct KernelContext;
struct ShapeInferContext;
struct SessionOptions;
struct CustomOpDomain;
struct TensorInfo; // OrtTensorTypeAndShapeInfo
struct OpAttribute;
struct CustomOp;

enum class ErrorCode : int { Fail = 1, InvalidArgument = 2 };
enum class AttributeType : int { Int = 1, Ints = 2, Float = 3, Floats = 4, String = 5 };
enum class Characteristic : int { Required = 0, Optional = 1, Variadic = 2 };
enum class MemoryType : int { CpuInput = -2, Default = 0 };

// As TensorProto.DataType up to BFloat16. Undefined, where an operator declares it, stands for any type.
enum class ElementType : int {
    Undefined = 0,
    Float32 = 1,
    UInt8 = 2,
    Int8 = 3,
    UInt16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Float64 = 11,
    UInt32 = 12,
    UInt64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    BFloat16 = 16,
    Float8E4M3FN = 17,
    Float8E4M3FNUZ = 18,
    Float8E5M2 = 19,
    Float8E5M2FNUZ = 20,
    UInt4 = 21,
    Int4 = 22,
    Float4E2M1 = 23,
    UInt2 = 24,
    Int2 = 25,
    Float8E8M0 = 26,
};

// One function of the table: where it stands, and its type.
template <std::size_t at, class Type>
struct Entry {
    static constexpr std::size_t position = at;
    using Function = Type;
};

using CreateStatus = Entry<0, Status*(ErrorCode, const char* message)>; // copies the message
using CreateCustomOpDomain = Entry<26, Status*(const char* name, CustomOpDomain**)>;
using CustomOpDomain_Add = Entry<27, Status*(CustomOpDomain*, const CustomOp*)>;
using AddCustomOpDomain = Entry<28, Status*(SessionOptions*, CustomOpDomain*)>; // keeps the pointer
using GetTensorMutableData = Entry<51, Status*(Value*, void**)>;
using CreateTensorInfo = Entry<57, Status*(TensorInfo**)>;
using SetTensorElementType = Entry<58, Status*(TensorInfo*, ElementType)>;
using SetDimensions = Entry<59, Status*(TensorInfo*, const std::int64_t* dims, std::size_t count)>;
using GetTensorElementType = Entry<60, Status*(const TensorInfo*, ElementType*)>;
using GetDimensionsCount = Entry<61, Status*(const TensorInfo*, std::size_t*)>;
using GetDimensions = Entry<62, Status*(const TensorInfo*, std::int64_t* dims, std::size_t count)>;
using GetSymbolicDimensions = Entry<63, Status*(const TensorInfo*, const char** names, std::size_t count)>;
using GetTensorInfo = Entry<65, Status*(const Value*, TensorInfo**)>; // the caller releases it
using KernelInfoGetAttribute_float = Entry<85, Status*(const KernelInfo*, const char* name, float*)>;
using KernelInfoGetAttribute_int64 = Entry<86, Status*(const KernelInfo*, const char* name, std::int64_t*)>;
using KernelInfoGetAttribute_string = Entry<87, Status*(const KernelInfo*, const char* name, char*, std::size_t* size)>;
using KernelContext_GetInput = Entry<90, Status*(const KernelContext*, std::size_t index, const Value**)>;
using KernelContext_GetOutput =
    Entry<91, Status*(KernelContext*, std::size_t index, const std::int64_t* dims, std::size_t count, Value**)>;
using ReleaseStatus = Entry<93, void(Status*)>;
using ReleaseTensorInfo = Entry<99, void(TensorInfo*)>;
using ReleaseCustomOpDomain = Entry<101, void(CustomOpDomain*)>;
using GetStringTensorElementLength = Entry<127, Status*(const Value*, std::size_t index, std::size_t*)>;
using GetStringTensorElement = Entry<128, Status*(const Value*, std::size_t length, std::size_t index, void*)>;
using KernelInfoGetAttributeArray_float = Entry<162, Status*(const KernelInfo*, const char*, float*, std::size_t*)>;
using KernelInfoGetAttributeArray_int64 =
    Entry<163, Status*(const KernelInfo*, const char* name, std::int64_t*, std::size_t* count)>;
using KernelInfo_GetNodeName = Entry<244, Status*(const KernelInfo*, char*, std::size_t* size)>;
using GetResizedStringTensorElementBuffer =
    Entry<252, Status*(Value*, std::size_t index, std::size_t length, char** buffer)>;
using ShapeInferContext_GetInputTypeShape = // the context keeps what it gives
    Entry<268, Status*(const ShapeInferContext*, std::size_t index, TensorInfo**)>;
using ShapeInferContext_GetAttribute = Entry<269, Status*(const ShapeInferContext*, const char*, const OpAttribute**)>;
using ShapeInferContext_SetOutputTypeShape =
    Entry<270, Status*(const ShapeInferContext*, std::size_t index, const TensorInfo*)>;
using SetSymbolicDimensions = Entry<271, Status*(TensorInfo*, const char** names, std::size_t count)>;
using ReadOpAttr = Entry<272, Status*(const OpAttribute*, AttributeType, void*, std::size_t bytes, std::size_t* read)>;
using KernelContext_ParallelFor = // batches 0: every index is a task of its own
    Entry<274, Status*(const KernelContext*, void (*)(void*, std::size_t), std::size_t count, std::size_t batches,
                       void* data)>;

// OrtApi, as far as this version goes.
struct Api {
    void (*table[275])();

    template <class E, class... Arguments>
    auto call(Arguments... arguments) const {
        static_assert(E::position < sizeof(table) / sizeof(*table), "beyond this version's table");
        return reinterpret_cast<typename E::Function*>(table[E::position])(arguments...);
    }
};

struct ApiBase {
    const Api* (*get_api)(std::uint32_t version); // null where the runtime is older
    const char* (*version_string)();
};

// OrtCustomOp of this version. Unused members stay null: the runtime prefers CreateKernelV2 and KernelComputeV2, and
// asks for the variadic ones only where an input or output is variadic.
struct CustomOp {
    std::uint32_t version;
    void* (*create_kernel)(const CustomOp*, const Api*, const KernelInfo*);
    const char* (*name)(const CustomOp*);
    const char* (*execution_provider)(const CustomOp*); // null: the CPU's
    ElementType (*input_type)(const CustomOp*, std::size_t index);
    std::size_t (*input_count)(const CustomOp*);
    ElementType (*output_type)(const CustomOp*, std::size_t index);
    std::size_t (*output_count)(const CustomOp*);
    void (*compute)(void* kernel, KernelContext*);
    void (*destroy_kernel)(void* kernel);
    Characteristic (*input_characteristic)(const CustomOp*, std::size_t index);
    Characteristic (*output_characteristic)(const CustomOp*, std::size_t index);
    MemoryType (*input_memory)(const CustomOp*, std::size_t index);
    int (*variadic_input_least)(const CustomOp*);
    int (*variadic_input_homogeneous)(const CustomOp*);
    int (*variadic_output_least)(const CustomOp*);
    int (*variadic_output_homogeneous)(const CustomOp*);
    Status* (*create_kernel_v2)(const CustomOp*, const Api*, const KernelInfo*, void** kernel);
    Status* (*compute_v2)(void* kernel, KernelContext*);
    Status* (*infer_output_shape)(const CustomOp*, ShapeInferContext*); // the runtime drops the status: return null
    int (*first_version)(const CustomOp*);
    int (*last_version)(const CustomOp*);
};

} // namespace warpfuse::ort
