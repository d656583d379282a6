// The module `stele`: `import stele;` instead of the public headers. Macros are in stele/macros.hpp. The headers for
// types of other libraries (cereal.hpp, eigen.hpp, mpi.hpp, torch.hpp, xtensor.hpp) are not part of it.
//
// It is among the headers, and so installed with them, because every program compiles it with its own compiler and
// flags (CMake: FILE_SET CXX_MODULES; here the option STELE_CXX_MODULE and the target stele::module).
// tests/module/names.py compares the names below with those of the headers.
module;

#include "stele/bundle.hpp"
#include "stele/checkpoints/manager.hpp"
#include "stele/checkpoints/random.hpp"
#include "stele/checkpoints/sharded.hpp"
#include "stele/checkpoints/steps_format.hpp"
#include "stele/composite.hpp"
#include "stele/delta.hpp"
#include "stele/deltas/updates.hpp"
#include "stele/derived.hpp"
#include "stele/device.hpp"
#include "stele/expansion.hpp"
#include "stele/export.hpp"
#include "stele/formatter.hpp"
#include "stele/mdspan.hpp"
#include "stele/parts.hpp"
#include "stele/plugin.hpp"
#include "stele/precision/base64.hpp"
#include "stele/precision/blocks.hpp"
#include "stele/precision/complex.hpp"
#include "stele/precision/shuffle.hpp"
#include "stele/quantized.hpp"
#include "stele/recorders/archive.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/recorders/executorch.hpp"
#include "stele/recorders/flax.hpp"
#include "stele/recorders/gguf.hpp"
#include "stele/recorders/keras.hpp"
#include "stele/recorders/mxnet.hpp"
#include "stele/recorders/nnef.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/recorders/onnx.hpp"
#include "stele/recorders/openvino.hpp"
#include "stele/recorders/paddle.hpp"
#include "stele/recorders/pytorch.hpp"
#include "stele/recorders/read_only.hpp"
#include "stele/recorders/samediff.hpp"
#include "stele/recorders/stele_writer.hpp"
#include "stele/recorders/tensorflow.hpp"
#include "stele/recorders/zarr.hpp"
#include "stele/recover.hpp"
#include "stele/stele.hpp"
#include "stele/transform.hpp"
#include "stele/transforms/keras.hpp"
#include "stele/transforms/llama_cpp.hpp"
#include "stele/transforms/lora.hpp"
#include "stele/transforms/pytorch.hpp"

export module stele;

// In the namespace of the declarations themselves, because users specialise some of the templates.
export namespace stele::inline v0 {

// stele/
using v0::Annotations, v0::ArgumentDescriptor, v0::ArgumentType, v0::Attribute, v0::AttributeValue, v0::BlockSize,
    v0::BlockTensor, v0::BufferSink, v0::Bundle, v0::ByteRange, v0::Bytes, v0::Capabilities, v0::Checkpoint,
    v0::CheckpointFormat, v0::CheckpointRecorder, v0::CompositeInfo, v0::DeltaInfo, v0::DeviceCopy, v0::DeviceKind,
    v0::DType, v0::DTypeClass, v0::Durability, v0::ElementCounter, v0::Errc, v0::Error, v0::Exception, v0::Executor,
    v0::ExportOptions, v0::Extent, v0::FatalHandler, v0::FileSinkOptions, v0::Filter, v0::FolderCheck, v0::Format,
    v0::FormatChoice, v0::FormatFamily, v0::FrameworkNode, v0::Graph, v0::GraphArguments, v0::GraphArray,
    v0::GraphOperation, v0::GraphProperty, v0::GraphVariable, v0::ImportOptions, v0::Input, v0::Layout, v0::LeafHandle,
    v0::LeafOps, v0::LeafView, v0::Limits, v0::LoadOptions, v0::Location, v0::LoraOptions, v0::Loss, v0::MappingSet,
    v0::MemoryRecorder, v0::NamedArguments, v0::NativeFile, v0::Node, v0::NodeKind, v0::NodeName, v0::OpFamily,
    v0::OpenContext, v0::OperatorDeclaration, v0::OperatorDescriptor, v0::OperatorSet, v0::OptimizerState, v0::Output,
    v0::Param, v0::ParamId, v0::Part, v0::PieceSink, v0::PrecisionRule, v0::Progress, v0::ProgressCallback,
    v0::Provider, v0::Quantize, v0::Quantized, v0::ReadAheadOptions, v0::ReadContext, v0::ReadOnlyFormat,
    v0::ReadOnlyRecorder, v0::Record, v0::Recorder, v0::Recovered, v0::Rename, v0::Report, v0::Result, v0::SaveOptions,
    v0::ScheduleType, v0::Schema, v0::Shape, v0::SharedRecord, v0::Sink, v0::Snapshot, v0::SnapshotBuilder, v0::Source,
    v0::SourcePtr, v0::SourceRange, v0::SpanSink, v0::Status, v0::Storage, v0::StoredOnce, v0::StreamSink, v0::Tensor,
    v0::TensorView, v0::TrainingConfig, v0::TrainingNumber, v0::TrainingObject, v0::TrainingRate, v0::TrainingRaw,
    v0::TrainingText, v0::Transfer, v0::TypedLeaf, v0::Unexpanded, v0::UnknownKinds, v0::Value, v0::ValueEntry,
    v0::ValueKind, v0::VariableKind, v0::WeightScheme;
using v0::append_segment, v0::apply_delta, v0::attributes, v0::bits, v0::block_size, v0::borrow_bytes, v0::bundle_sink,
    v0::bundle_source, v0::byte_length, v0::check_expansion, v0::checked_add, v0::checked_mul, v0::composite,
    v0::concatenate, v0::decode, v0::default_load_options, v0::default_save_options, v0::delta_info, v0::dequantize,
    v0::dequantize_if, v0::derived, v0::derived_list, v0::dry_run, v0::dtype_class, v0::dynamic_rank, v0::element_count,
    v0::element_size, v0::export_onnx, v0::file_name, v0::file_sink, v0::filter, v0::flatten, v0::folder_bundle,
    v0::folder_sink, v0::for_each_param, v0::from_record, v0::get, v0::import_onnx, v0::import_tensorflow, v0::is_block,
    v0::is_known, v0::is_plain_float, v0::join_composites, v0::layout_of, v0::learning_rate, v0::load, v0::load_into,
    v0::make_delta, v0::map_file, v0::matches, v0::memory_bundle, v0::merge, v0::merge_deltas, v0::merge_lora, v0::name,
    v0::named, v0::nest, v0::no_index, v0::node_kind_count, v0::num_params, v0::open, v0::open_checkpoint,
    v0::open_descriptor, v0::open_file, v0::open_folder, v0::operation_hash, v0::ordered, v0::overlay, v0::own_bytes,
    v0::parse_json, v0::parse_layout, v0::part, v0::quantization_key, v0::quantize, v0::quantize_blocks,
    v0::quantize_weights, v0::raw_codes, v0::read_ahead, v0::record_of, v0::recover, v0::rename, v0::reshape,
    v0::schema_of, v0::set_fatal_handler, v0::snapshot_of, v0::split, v0::split_composites, v0::spool, v0::summary,
    v0::swap_unit, v0::tensor_traits, v0::to_json, v0::to_string, v0::to_text, v0::transpose, v0::unexpanded,
    v0::unreadable_reason, v0::updater_state_keys, v0::value_at, v0::verify, v0::weights_digest, v0::with_metadata,
    v0::with_precision, v0::with_prefix, v0::with_properties;
using v0::operator<<;  // the other operators are friends
// stele/deltas/
using v0::UpdateOptions, v0::apply_update, v0::is_update, v0::save_update;
// stele/checkpoints/
using v0::Better, v0::BrokenStep, v0::CheckpointManager, v0::KeepPolicy, v0::ManagerOptions, v0::OpenedStep,
    v0::SaveMoment, v0::SavePolicy, v0::SavedStep, v0::Sharded, v0::StateKind, v0::StepInfo, v0::StepValues,
    v0::StepsFormat;
using v0::checkpoint_of, v0::random_state, v0::set_random_state;
// stele/precision/
using v0::base64_decode, v0::base64_decoded_size, v0::base64_encode, v0::base64_size, v0::bfloat16, v0::convert,
    v0::convertible, v0::decode_blocks, v0::dtype_of_v, v0::encodable, v0::encode_blocks, v0::float16,
    v0::float8_e4m3fn, v0::lossless, v0::precision_spec, v0::shuffle_bytes, v0::unshuffle_bytes, v0::value_traits;
using v0::BlockPrecision, v0::BlockRule, v0::BrainPrecision, v0::ConvertOutcome, v0::ConvertRules, v0::ConvertStatus,
    v0::DoublePrecision, v0::Element, v0::FullPrecision, v0::HalfPrecision, v0::NativePrecision, v0::PrecisionSettings,
    v0::PrecisionSpec, v0::Quantized4, v0::Quantized8, v0::TypeKind, v0::UnrecordedField;
// stele/recorders/
using v0::apply_in_place, v0::archive_tags, v0::burn_header, v0::burn_optimizer, v0::burn_optimizer_record,
    v0::burnpack_optimizer_record, v0::find_format, v0::format_families, v0::format_of_content, v0::format_of_path,
    v0::formats, v0::load_plugin, v0::open_archive, v0::open_with_deltas, v0::open_samediff, v0::paddle_program,
    v0::quantize_gguf, v0::register_formats, v0::remove_archive_tag, v0::save, v0::settings_of_pytorch_alone,
    v0::write_to, v0::written_size;
using v0::ArchiveEdit, v0::ArchiveFormat, v0::ArchiveOptions, v0::ArchiveRecorder, v0::BinaryRecorder,
    v0::BurnDoublePrecision, v0::BurnEncoding, v0::BurnEra, v0::BurnFormat, v0::BurnFullPrecision,
    v0::BurnHalfPrecision, v0::BurnHeader, v0::BurnOptimizer, v0::BurnOptimizerRecord, v0::BurnOptions, v0::BurnRanked,
    v0::BurnRecorder, v0::BurnpackFormat, v0::BurnpackOptions, v0::BurnpackRecorder, v0::BytesRecorder, v0::CaffeFormat,
    v0::CaffeRecorder, v0::CompressedRecorder, v0::CompressedSteleFormat, v0::Compression, v0::CoremlFormat,
    v0::CoremlRecorder, v0::DarknetFormat, v0::DarknetOptions, v0::DarknetRecorder, v0::FlaxFormat, v0::FlaxOptions,
    v0::FlaxRecorder, v0::GgufFormat, v0::GgufPrecision, v0::GgufRecorder, v0::Hdf5Format, v0::Hdf5Recorder,
    v0::HubFormat, v0::HubRecorder, v0::JsonEncoding, v0::JsonFormat, v0::JsonOptions, v0::JsonRecorder,
    v0::KerasFormat, v0::KerasRecorder, v0::Llama2cFormat, v0::Llama2cRecorder, v0::MxnetFormat, v0::MxnetNames,
    v0::MxnetOptions, v0::MxnetRecorder, v0::NcnnFormat, v0::NcnnRecorder, v0::NnefContainer, v0::NnefFormat,
    v0::NnefOptions, v0::NnefRecorder, v0::NpyFormat, v0::NpyOptions, v0::NpyRecorder, v0::NpzFormat, v0::NpzRecorder,
    v0::OnnxFormat, v0::OnnxOptions, v0::OnnxRecorder, v0::OpenvinoFormat, v0::OpenvinoOptions, v0::OpenvinoRecorder,
    v0::OrbaxFormat, v0::OrbaxRecorder, v0::PaddleFormat, v0::PaddleFraming, v0::PaddleNames, v0::PaddleOptions,
    v0::PaddleOrder, v0::PaddleRecorder, v0::PaddleVariable, v0::PickleFormat, v0::PickleRecorder, v0::PtdFormat,
    v0::PtdRecorder, v0::PteFormat, v0::PteRecorder, v0::PytorchFormat, v0::PytorchOptions, v0::PytorchRecorder,
    v0::SafetensorsFormat, v0::SafetensorsRecorder, v0::SameDiffContainer, v0::SameDiffFormat, v0::SameDiffOptions,
    v0::SameDiffRecorder, v0::ShardedSafetensorsFormat, v0::ShardedSafetensorsRecorder, v0::SteleFormat,
    v0::TensorBundleFormat, v0::TensorBundleNames, v0::TensorBundleOptions, v0::TensorBundleRecorder, v0::TfliteFormat,
    v0::TfliteRecorder, v0::WhisperFormat, v0::WhisperRecorder, v0::ZarrFormat, v0::ZarrOptions, v0::ZarrRecorder;

namespace parts {
using parts::Awq, parts::Fp8Blocks, parts::Gptq, parts::Mxfp4, parts::Nvfp4, parts::PackedIntegers;
}
namespace attr {
using attr::alias, attr::alternative, attr::burn_layout, attr::burn_record, attr::keep_default, attr::moved,
    attr::rename, attr::skip, attr::type_name, attr::version, attr::was_one;
}
namespace detail {  // for the macros
using detail::ClassList, detail::access, detail::base_list, detail::member_descriptor_fn_impl, detail::mod_private,
    detail::mod_protected, detail::mod_public, detail::record_field_of;
}
namespace device {
using device::BlockTensor, device::Driver, device::Replicated, device::Stream, device::Tensor, device::TransferOptions,
    device::make_transfer;
}
namespace format {
using format::Entry, format::Fault, format::Hash, format::Header, format::Index, format::MemoryFile, format::NodeView,
    format::TensorBytes, format::Trailer, format::alias_entry, format::all_zero, format::block_alignment,
    format::compressed_blocks, format::entry_size, format::flat_names, format::guessed_kinds, format::header_size,
    format::index_header_size, format::known_features, format::load_le, format::magic, format::node_size,
    format::parse_header, format::parse_trailer, format::round_up, format::store_le, format::stored_blocks,
    format::stored_size, format::trailer_size, format::type_size, format::version, format::weight_delta;
}
namespace ggml {
using ggml::iq4_nl, ggml::mxfp4, ggml::nvfp4, ggml::q1_0, ggml::q2_0, ggml::q2_K, ggml::q3_K, ggml::q4_0, ggml::q4_1,
    ggml::q4_K, ggml::q5_0, ggml::q5_1, ggml::q5_K, ggml::q6_K, ggml::q8_0, ggml::tq1_0, ggml::tq2_0;
}
namespace keep {
using keep::all, keep::best, keep::every_seconds, keep::every_steps, keep::latest, keep::matching;
}
namespace keras {
using keras::Layer, keras::LayerKind, keras::from_pytorch, keras::layers_of, keras::to_pytorch;
}
namespace llama_cpp {
using llama_cpp::from_hub, llama_cpp::has_known_names, llama_cpp::is_model_config;
}
namespace pytorch {
using pytorch::LayerRule, pytorch::adapt, pytorch::linear_in_out, pytorch::norm_gamma_beta, pytorch::restore;
}
namespace regularizations {
using regularizations::l1, regularizations::l2, regularizations::weight_decay;
}
namespace save_when {
using save_when::every_seconds, save_when::every_steps, save_when::on_signal;
}
namespace schedules {
using schedules::cycle, schedules::exponential, schedules::fixed, schedules::inverse, schedules::map, schedules::poly,
    schedules::ramp, schedules::sigmoid, schedules::step;
}
namespace updaters {
using updaters::ada_belief, updaters::ada_delta, updaters::ada_grad, updaters::ada_max, updaters::adam,
    updaters::ams_grad, updaters::nadam, updaters::nesterovs, updaters::no_op, updaters::rms_prop, updaters::sgd;
}

}  // namespace stele::inline v0
