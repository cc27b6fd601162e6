// Spark's checkpoint in a bucket, with as few requests as possible.
// `lbctl jars fetch --with s3` compiles it with the Scala compiler inside PySpark
// (lb_stream/kit/compile_jar.py). Why: docs/decisions/0029-checkpoints-by-condition.md.

package lb_stream

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/** A file is one PUT when it is closed. One that must be new is put on the condition that its name is free. */
class ConditionalCheckpoints(folder: Path, conf: Configuration) extends FileSystemBasedCheckpointFileManager(folder, conf) {

  override def createAtomic(file: Path, mayReplace: Boolean): CancellableFSDataOutputStream = {
    val builder = fs.createFile(file).recursive().overwrite(mayReplace)
    if (!mayReplace) builder.must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true)
    new WholeFile(builder.build())
  }

  /** A batch's plan or commit is never a folder: there one look is enough. */
  @annotation.nowarn("cat=deprecation")
  override def exists(file: Path): Boolean = if (isOfBatch(file)) fs.isFile(file) else super.exists(file)

  /** Of such a file nothing else has to be asked: neither what it is, nor whether its folder goes on without it. */
  override def delete(file: Path): Unit = if (isOfBatch(file)) {
    val bulk = fs.createBulkDelete(file.getParent)
    try bulk.bulkDelete(java.util.List.of(file)) finally bulk.close()
  } else super.delete(file)

  /** The state's folders have numbers for their names, too. */
  private def isOfBatch(file: Path) = file.getName.forall(_.isDigit) && Set("offsets", "commits")(file.getParent.getName)
}

/** Closed, it is there as a whole; cancelled, it never was. */
class WholeFile(out: FSDataOutputStream) extends CancellableFSDataOutputStream(out) {
  private var over = false

  override def close(): Unit = synchronized {
    if (!over) {
      over = true
      out.close()
    }
  }

  override def cancel(): Unit = synchronized {
    if (!over) {
      over = true
      out.abort()
      out.close()
    }
  }
}
