-- Run once by the postgres image, in an empty volume; the database plt, for studies, is the image's POSTGRES_DB.
CREATE DATABASE mlflow ENCODING 'UTF8' TEMPLATE template0;
CREATE DATABASE mlflow_users ENCODING 'UTF8' TEMPLATE template0;
